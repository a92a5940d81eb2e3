/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>

#include "rendezvous/round/failures.h"
#include "tests/lib/test.h"

static struct ct_failure make(uint8_t cause, int32_t code, int32_t rank)
{
    return (struct ct_failure){
        .generation = 1, .cause = cause, .code = code, .rank = rank, .pid = 100 + rank};
}

TEST(exit_codes_are_those_of_the_cause)
{
    static const struct {
        uint8_t cause;
        int32_t code;
        uint8_t exit_code;
    } table[] = {
        {CT_CAUSE_EXIT, 3, 3},
        {CT_CAUSE_EXIT, 256, 1},
        {CT_CAUSE_EXIT, -1, 255},
        {CT_CAUSE_SIGNAL, SIGKILL, 137},
        {CT_CAUSE_SIGNAL, SIGSEGV, 139},
        {CT_CAUSE_OOM, 0, 137},
        {CT_CAUSE_EXEC, ENOENT, 127},
        {CT_CAUSE_EXEC, EACCES, 126},
        {CT_CAUSE_STOPPED, SIGTERM, 143},
        {CT_CAUSE_NODE_LOST, 0, 75},
        {CT_CAUSE_UNKILLABLE, 0, 76},
        {CT_CAUSE_JOIN_TIMEOUT, 0, 75},
        {CT_CAUSE_AGENT, 0, 1},
        {CT_CAUSE_HANG, 2, 1},
        {CT_CAUSE_UNREACHABLE, 29611, 75},
        {200, 0, 1},
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        struct ct_failure failure = make(table[i].cause, table[i].code, 0);

        assert_int_equal(failures_exit_code(&failure), table[i].exit_code);
    }
}

TEST(consequences_stand_behind_causes)
{
    static struct failures failures;
    struct ct_failure stopped = make(CT_CAUSE_STOPPED, SIGTERM, 0);
    struct ct_failure cause = make(CT_CAUSE_EXIT, 1, 1);
    struct ct_failure out[CT_FAILURES_MAX];

    failures_add(&failures, &stopped);
    assert_null(failures_get_root(&failures));
    failures_add(&failures, &cause);
    failures_add(&failures, &cause); /* the same failure, in the STOPPED of its node */
    assert_int_equal(failures_get_root(&failures)->rank, 1);
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), 2);
    assert_int_equal(out[0].cause, CT_CAUSE_EXIT);
    assert_int_equal(out[1].cause, CT_CAUSE_STOPPED);
    failures_clear(&failures);
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), 0);
}

TEST(a_cause_told_before_its_worker_ended_gets_its_end_later)
{
    static struct failures failures;
    struct ct_failure hung = make(CT_CAUSE_HANG, 0, 1);
    struct ct_failure end = make(CT_CAUSE_STOPPED, SIGTERM, 1);
    struct ct_failure out[CT_FAILURES_MAX];

    end.end_code = 20;
    failures_clear(&failures);
    failures_add(&failures, &hung);
    failures_add(&failures, &end);
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), 1);
    assert_int_equal(out[0].cause, CT_CAUSE_HANG);
    assert_int_equal(out[0].end_code, 20);
}

TEST(the_end_of_one_that_had_raised_is_not_a_second_failure)
{
    static struct failures failures;
    struct ct_failure raised = make(CT_CAUSE_RAISED, 0, 1);
    struct ct_failure out[CT_FAILURES_MAX];

    failures_clear(&failures);
    failures_add(&failures, &raised);
    raised.end_code = 1;
    failures_add(&failures, &raised);
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), 1);
    assert_int_equal(out[0].end_code, 1);
    assert_int_equal(failures_exit_code(&out[0]), 1);
}

TEST(beyond_the_room_the_first_ones_stay)
{
    static struct failures failures;
    struct ct_failure out[CT_FAILURES_MAX];

    for (int rank = 0; rank < 100; rank++) {
        struct ct_failure failure = make(CT_CAUSE_EXIT, 1, rank);

        failures_add(&failures, &failure);
    }
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), CT_FAILURES_MAX);
    assert_int_equal(out[0].rank, 0);
    assert_int_equal(out[CT_FAILURES_MAX - 1].rank, CT_FAILURES_MAX - 1);
    assert_int_equal(failures_copy(&failures, out, 1), 1);
}

/* 3 nodes of 100 ranks: on each, 2 failed by themselves and 98 were stopped. A failure in FAILURE
 * is reported again at the end of its node. */
TEST(all_that_find_no_room_are_counted_once)
{
    static struct failures failures;
    const struct failures_arrival early = {.at_ms = 5},
                                  end = {.at_ms = 9, .is_end = true};
    struct ct_more more;

    failures_clear(&failures);
    for (int rank = 0; rank < 300; rank += 50) {
        struct ct_failure failure = make(CT_CAUSE_EXIT, 1, rank);

        failures_add_reported(&failures, &failure, &early);
    }
    for (int rank = 0; rank < 300; rank++) {
        const bool is_own = rank % 50 == 0;
        struct ct_failure failure = make(is_own ? CT_CAUSE_EXIT : CT_CAUSE_STOPPED,
                                         is_own ? 1 : SIGTERM, rank);

        if (is_own || rank % 100 < 15)
            failures_add_reported(&failures, &failure, &end);
    }
    failures_add_more(&failures, &(struct ct_more){.stopped = 3 * 84});
    more = failures_count_more(&failures);
    assert_int_equal(more.failed, 0);
    assert_int_equal(more.stopped, 3 * 98 - (CT_FAILURES_MAX - 6));
    for (int rank = 300; rank < 320; rank++) {
        struct ct_failure failure = make(CT_CAUSE_EXIT, 1, rank);

        failures_add_reported(&failures, &failure, &early);
        failures_add_reported(&failures, &failure, &end);
    }
    more = failures_count_more(&failures);
    assert_int_equal(more.failed, 26 - CT_FAILURES_MAX);
    assert_int_equal(more.stopped, 3 * 98);
}

TEST(a_victim_is_not_the_root_cause_even_when_heard_first)
{
    static struct failures failures;
    struct ct_failure lost = make(CT_CAUSE_NODE_LOST, 0, -1);
    struct ct_failure out[CT_FAILURES_MAX];

    for (int rank = 0; rank < 100; rank++) {
        struct ct_failure victim = make(CT_CAUSE_EXIT, 1, rank);

        victim.error = CTRUN_E_PEER_LOST;
        failures_add(&failures, &victim);
    }
    /* No better cause is known. */
    assert_int_equal(failures_get_root(&failures)->rank, 0);
    failures_add(&failures, &lost); /* gets room, though the list was full */
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), CT_FAILURES_MAX);
    assert_int_equal(out[0].cause, CT_CAUSE_NODE_LOST);
    assert_int_equal(out[1].rank, 0); /* the victims keep their order */
    assert_int_equal(out[2].rank, 1);
}

/* Reports a failure at `at_ms` over a link of 10 ms, `age_ms` after it happened. */
static void tell(struct failures *failures, int32_t rank, uint64_t age_ms,
                 uint64_t at_ms)
{
    struct ct_failure failure = make(CT_CAUSE_EXIT, 1, rank);

    failure.age_ms = age_ms;
    failures_add_reported(failures, &failure,
                          &(struct failures_arrival){.at_ms = at_ms, .rtt_ms = 10});
}

static int32_t root_of(const struct failures *failures)
{
    return failures_get_root(failures)->rank;
}

TEST(who_failed_first_is_the_root_cause_even_when_told_last)
{
    static struct failures failures;
    struct ct_failure out[CT_FAILURES_MAX];

    failures_clear(&failures);
    tell(&failures, 0, 1, 20000);
    tell(&failures, 1, 1, 20300);
    assert_int_equal(root_of(&failures), 0);
    tell(&failures, 2, 3000, 22000);
    tell(&failures, 3, 1500, 22000);
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), 4);
    for (int i = 0; i < 4; i++) {
        static const int32_t ranks[] = {2, 0, 1, 3};
        static const uint64_t later_ms[] = {0, 999, 1299, 1500};

        assert_int_equal(out[i].rank, ranks[i]);
        assert_int_equal(out[i].later_ms, later_ms[i]);
    }
    tell(&failures, 2, 4000, 23000); /* the same failure, in its STOPPED */
    assert_int_equal(failures.cause_count, 4);
}

TEST(what_is_closer_than_the_doubt_stays_as_it_came)
{
    static struct failures failures;
    struct ct_failure out[CT_FAILURES_MAX];

    failures_clear(&failures);
    tell(&failures, 0, 1, 20001);
    tell(&failures, 1, 1110, 21000); /* 110 ms before: the doubt of link and machine */
    assert_int_equal(root_of(&failures), 0);
    failures_copy(&failures, out, CT_FAILURES_MAX);
    assert_int_equal(out[1].later_ms, 0);
    tell(&failures, 2, 1111, 21000);
    assert_int_equal(root_of(&failures), 2);
    tell(&failures, 3, UINT64_MAX, 21000); /* a very large age */
    assert_int_equal(root_of(&failures), 3);
}

TEST(of_those_that_are_stuck_the_furthest_behind_is_the_one)
{
    static struct failures failures;
    struct ct_failure out[CT_FAILURES_MAX];

    failures_clear(&failures);
    for (int32_t rank = 0; rank < 3; rank++) {
        struct ct_failure failure = make(CT_CAUSE_HANG, rank, rank);

        failure.step = rank == 0 ? 9 : 4; /* 1 and 2 are alike except for the state */
        failures_add(&failures, &failure);
    }
    assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX), 1);
    assert_int_equal(out[0].rank, 2);
}

/* The time that the earlier report needed makes its failure earlier, not more uncertain. */
TEST(only_the_link_of_the_later_one_makes_doubt)
{
    static const struct {
        uint64_t rtt_ms; /* of the first report; the next: of the second */
        uint64_t other_ms;
        int32_t root;
    } rows[] = {{0, 1000, 1}, {1000, 0, 0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static struct failures failures;
        struct ct_failure failure = make(CT_CAUSE_EXIT, 1, 0);

        failures_clear(&failures);
        failure.age_ms = 1;
        failures_add_reported(
            &failures, &failure,
            &(struct failures_arrival){.at_ms = 20001, .rtt_ms = rows[i].rtt_ms});
        failure = make(CT_CAUSE_EXIT, 1, 1);
        failure.age_ms = 500;
        failures_add_reported(
            &failures, &failure,
            &(struct failures_arrival){.at_ms = 20001, .rtt_ms = rows[i].other_ms});
        assert_int_equal(root_of(&failures), rows[i].root);
    }
}

/* Its node does not know when the other one's worker failed. */
TEST(what_ended_with_zero_on_another_node_is_told_unless_it_was_later)
{
    static const uint64_t ages_ms[] = {2000, 1010, 0, 500};
    static const int causes[] = {CT_CAUSE_EARLY, CT_CAUSE_ENDED, CT_CAUSE_ENDED, -1};
    const struct failures_arrival arrival = {.at_ms = 10000, .rtt_ms = 1};

    for (size_t i = 0; i < sizeof ages_ms / sizeof *ages_ms; i++) {
        struct failures failures = {0};
        struct ct_failure cause = make(CT_CAUSE_EXIT, 1, 0);
        struct ct_failure early = make(CT_CAUSE_EARLY, 0, 1);
        struct ct_failure out[CT_FAILURES_MAX];

        cause.age_ms = 1000;
        early.age_ms = ages_ms[i];
        early.node_rank = 1;
        failures_add_reported(&failures, &early, &arrival);
        failures_add_reported(&failures, &cause, &arrival);
        assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX),
                         causes[i] < 0 ? 1 : 2);
        if (causes[i] >= 0)
            assert_int_equal(out[1].cause, causes[i]);
    }
}

/* The stuck rank began to wait when the other one ended, or before. */
TEST(what_ended_with_zero_before_a_hang_was_reported_ended_before_it)
{
    static const uint64_t ended_ms[] = {1000, 9000, 9995, 10500};
    static const int causes[] = {CT_CAUSE_EARLY, CT_CAUSE_EARLY, CT_CAUSE_ENDED, -1};

    for (size_t i = 0; i < 2 * (sizeof ended_ms / sizeof *ended_ms); i++) {
        struct failures failures = {0};
        struct ct_failure hang = make(CT_CAUSE_HANG, 16, 0);
        struct ct_failure early = make(CT_CAUSE_EARLY, 0, 1);
        struct ct_failure out[CT_FAILURES_MAX];
        const int cause = causes[i / 2];

        hang.age_ms = i % 2 * 8000; /* one that reports steps has none */
        early.age_ms = 11000 - ended_ms[i / 2];
        early.node_rank = 1;
        failures_add_reported(&failures, &hang,
                              &(struct failures_arrival){.at_ms = 10000, .rtt_ms = 1});
        failures_add_reported(&failures, &early,
                              &(struct failures_arrival){.at_ms = 11000, .rtt_ms = 1});
        assert_int_equal(failures_copy(&failures, out, CT_FAILURES_MAX),
                         cause < 0 ? 1 : 2);
        if (cause >= 0)
            assert_int_equal(out[1].cause, cause);
    }
}

TEST(without_an_age_the_first_to_tell_is_first)
{
    static struct failures failures;
    struct ct_failure lost = make(CT_CAUSE_NODE_LOST, 0, -1);

    failures_clear(&failures);
    tell(&failures, 0, 0, 20000);
    tell(&failures, 1, 9000, 20001);
    assert_int_equal(root_of(&failures), 0);
    failures_clear(&failures);
    tell(&failures, 0, 1, 20000);
    tell(&failures, 1, 0, 20001);
    assert_int_equal(root_of(&failures), 0);
    failures_clear(&failures);
    failures_add(&failures, &lost);
    tell(&failures, 0, 9000, 20000);
    assert_int_equal(root_of(&failures), -1);
}

TEST(after_the_decision_the_root_cause_stays)
{
    static struct failures failures;
    struct ct_failure failure = make(CT_CAUSE_EXIT, 1, 1);

    failures_clear(&failures);
    tell(&failures, 0, 1, 20000);
    failure.age_ms = 9000;
    failures_add_reported(
        &failures, &failure,
        &(struct failures_arrival){.at_ms = 21000, .is_decided = true});
    assert_int_equal(root_of(&failures), 0);
    assert_int_equal(failures.cause_count, 2);
}

TEST(the_first_one_finds_room_and_no_victim_is_it)
{
    static struct failures failures;
    struct ct_failure victim = make(CT_CAUSE_EXIT, 1, 98);

    failures_clear(&failures);
    for (int32_t rank = 0; rank < 100; rank++)
        tell(&failures, rank, 1, 20000);
    tell(&failures, 99, 5000, 21000);
    assert_int_equal(root_of(&failures), 99);
    assert_int_equal(failures.cause_count, CT_FAILURES_MAX);
    assert_int_equal(failures.causes[1].rank, 0);
    failures_clear(&failures);
    tell(&failures, 0, 1, 20000);
    victim.age_ms = 9000;
    victim.error = CTRUN_E_PEER_LOST;
    failures_add_reported(&failures, &victim,
                          &(struct failures_arrival){.at_ms = 20000});
    assert_int_equal(root_of(&failures), 0);
}

TEST(how_much_later_is_forgotten_with_another_root)
{
    static struct failures failures;
    struct ct_failure lost = make(CT_CAUSE_NODE_LOST, 0, -1);
    struct ct_failure restored = make(CT_CAUSE_EXIT, 1, 1);
    struct ct_failure out[CT_FAILURES_MAX];

    failures_clear(&failures);
    failures_add(&failures, &(struct ct_failure){.cause = CT_CAUSE_EXIT, .code = 1});
    restored.later_ms = 700; /* from a journal */
    failures_add(&failures, &restored);
    failures_copy(&failures, out, CT_FAILURES_MAX);
    assert_int_equal(out[1].later_ms, 700);
    failures_add_root(&failures, &lost);
    failures_copy(&failures, out, CT_FAILURES_MAX);
    assert_int_equal(out[2].later_ms, 0);
}
