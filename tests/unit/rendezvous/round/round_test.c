/* SPDX-License-Identifier: Apache-2.0 */
/* Single steps of the state machine; whole stories are in tests/sim. */
#include <errno.h>
#include <signal.h>

#include "rendezvous/round/round.h"
#include "rendezvous/round/round_limits.h"
#include "tests/lib/facts_text.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/alloc.h"

/* All rounds of a test: teardown frees them. */
static struct round *made[64];
static size_t made_count;

#define ROUND_TEST(test) TEST_AROUND(test, NULL, destroy_made)

static int destroy_made(void **state)
{
    while (made_count > 0)
        round_destroy(made[--made_count]);
    return 0;
}

static struct round *make(const struct round_settings *settings)
{
    assert_true(made_count < sizeof made / sizeof *made);
    assert_int_equal(round_create(&made[made_count], settings), 0);
    return made[made_count++];
}

static struct round *create(uint32_t min, uint32_t max, uint32_t restarts)
{
    const struct round_settings settings = {.min_nodes = min,
                                            .max_nodes = max,
                                            .max_restarts = restarts,
                                            .join_timeout_ms = 60000,
                                            .last_call_ms = 1000,
                                            .lost_after_ms = 5000};

    return make(&settings);
}

static void add_on(struct round *round, uint64_t id, const char *host, uint64_t now_ms)
{
    struct member_link link = {.id = id};

    snprintf(link.host, sizeof link.host, "%s", host);
    assert_int_equal(
        round_step(round, &(struct round_command){.kind = ROUND_ADD, .link = &link},
                   now_ms),
        0);
}

static void add(struct round *round, uint64_t id, uint64_t now_ms)
{
    char host[16];

    snprintf(host, sizeof host, "n%d", (int)id);
    add_on(round, id, host, now_ms);
}

static void say(struct round *round, uint64_t id, enum ct_message_kind kind,
                const void *body, uint64_t now_ms)
{
    const struct round_command command = {
        .kind = ROUND_MESSAGE,
        .id = id,
        .message = &(struct ct_message){kind, .body = body}};

    assert_int_equal(round_step(round, &command, now_ms), 0);
}

static void join_to_survive(struct round *round, uint64_t id, uint64_t survive_ms,
                            uint64_t now_ms)
{
    const struct ct_join message = {
        .slots = 1, .node_rank_hint = -1, .store_port = 9, .survive_ms = survive_ms};

    say(round, id, CT_MESSAGE_JOIN, &message, now_ms);
}

static void join(struct round *round, uint64_t id, uint64_t now_ms)
{
    join_to_survive(round, id, 0, now_ms);
}

static void report(struct round *round, uint64_t id, uint8_t cause, uint64_t now_ms)
{
    const struct ct_failure message = {
        .generation = round->generation, .cause = cause, .code = 7};

    say(round, id, CT_MESSAGE_FAILURE, &message, now_ms);
}

static void stopped(struct round *round, uint64_t id, uint64_t now_ms)
{
    const struct ct_stopped body = {.generation = round->generation};

    say(round, id, CT_MESSAGE_STOPPED, &body, now_ms);
}

static void gone(struct round *round, uint64_t id, uint64_t now_ms)
{
    const struct round_command command = {
        .kind = ROUND_GONE, .id = id, .reason = "broken"};

    assert_int_equal(round_step(round, &command, now_ms), 0);
}

static void tick(struct round *round, uint64_t now_ms)
{
    assert_int_equal(
        round_step(round, &(struct round_command){.kind = ROUND_TICK}, now_ms), 0);
}

/* A running world of the members 1 to count. */
static struct round *start(uint32_t min, uint32_t count, uint32_t restarts)
{
    struct round *round = create(min, count, restarts);

    for (uint32_t id = 1; id <= count; id++)
        add(round, id, 0);
    for (uint32_t id = 1; id <= count; id++)
        join(round, id, 0);
    assert_int_equal(round->state, ROUND_RUNNING);
    return round;
}

static size_t count_actions(const struct round *round, enum round_action_kind kind)
{
    size_t count = 0;

    for (size_t i = 0; i < round->action_count; i++)
        count += round->actions[i].kind == kind;
    return count;
}

/* ---- Tests ------------------------------------------------------------------------------- */

ROUND_TEST(impossible_settings_are_refused)
{
    static const struct round_settings bad[] = {
        {.min_nodes = 0, .max_nodes = 1, .lost_after_ms = 1},
        {.min_nodes = 2, .max_nodes = 1, .lost_after_ms = 1},
        {.min_nodes = 1, .max_nodes = 65536, .lost_after_ms = 1},
        {.min_nodes = 1, .max_nodes = 1, .lost_after_ms = 0},
    };
    struct round *round;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(round_create(&round, &bad[i]), -EINVAL);
}

ROUND_TEST(a_member_that_finds_no_memory_is_not_added)
{
    struct round *round = create(1, 3, 0);
    struct member_link link = {.id = 1};
    size_t n = 1;

    for (;; n++) {
        int rc;

        ct_alloc_fail_at(n);
        rc = round_step(round,
                        &(struct round_command){.kind = ROUND_ADD, .link = &link}, 0);
        ct_alloc_fail_at(0);
        if (rc == 0)
            break;
        assert_int_equal(rc, -ENOMEM);
        assert_int_equal(round->members.count, 0);
    }
    assert_true(n > 2);
    join(round, 1, 0);
    assert_int_equal(round->state, ROUND_FORMING);
}

ROUND_TEST(unknown_members_and_old_generations_change_nothing)
{
    static const enum ct_message_kind kinds[] = {CT_MESSAGE_SUCCEEDED,
                                                 CT_MESSAGE_STOPPED, CT_MESSAGE_FAILURE,
                                                 CT_MESSAGE_STOPPING};
    struct round *round = start(2, 2, 1);

    join(round, 99, 0);
    gone(round, 99, 0);
    report(round, 1, CT_CAUSE_EXIT, 0);
    for (uint64_t id = 1; id <= 2; id++)
        stopped(round, id, 0);
    for (uint64_t id = 1; id <= 2; id++)
        join(round, id, 0);
    assert_int_equal(round->generation, 2);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        /* The bodies of all these messages begin with the generation. */
        const struct ct_stopped late = {.generation = 1};
        const struct ct_failure failed = {.generation = 1, .cause = CT_CAUSE_EXIT};
        const bool is_failure = kinds[i] == CT_MESSAGE_FAILURE;

        say(round, 1, kinds[i], is_failure ? &failed : (const void *)&late, 0);
        assert_int_equal(round->action_count, 0);
        assert_int_equal(round->members.list[0]->state, MEMBER_RUNNING);
    }
    assert_int_equal(round->restart_count, 1);
}

ROUND_TEST(roles_that_are_not_those_of_the_workers_are_refused)
{
    struct round *round = create(2, 2, 0);
    struct ct_join message = {0};

    add(round, 1, 0);
    message = (struct ct_join){
        .slots = 2, .node_rank_hint = -1, .store_port = 9, .roles = {1, {{"a", 1}}}};
    say(round, 1, CT_MESSAGE_JOIN, &message, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(round->refuse.code, CTRUN_E_PROTOCOL);
}

/* The journal has the places of the roles of the last world beside the roles of the last JOIN: it
 * could not be read any more. */
ROUND_TEST(a_node_that_changes_its_roles_is_refused)
{
    struct round *round = create(1, 1, 1);
    struct ct_join message = {
        .slots = 1, .node_rank_hint = -1, .store_port = 9, .roles = {1, {{"a", 1}}}};

    add(round, 1, 0);
    say(round, 1, CT_MESSAGE_JOIN, &message, 0);
    assert_int_equal(round->state, ROUND_RUNNING);
    stopped(round, 1, 0);
    message.roles.count = 0;
    say(round, 1, CT_MESSAGE_JOIN, &message, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(round->refuse.code, CTRUN_E_PROTOCOL);
}

ROUND_TEST(a_join_that_makes_no_sense_is_refused_and_ends_the_member)
{
    struct round *round = create(2, 2, 0);
    struct ct_join message = {0};

    add(round, 1, 0);
    add(round, 2, 0);
    message.store_port = 9;
    say(round, 1, CT_MESSAGE_JOIN, &message, 0); /* no workers */
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(round->refuse.code, CTRUN_E_PROTOCOL);
    message.slots = 1;
    message.store_port = 0;
    say(round, 2, CT_MESSAGE_JOIN, &message, 0); /* no store */
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(count_actions(round, ROUND_FORGET), 1);
}

/* A world that stopped because of it would look for a cause that does not exist. */
ROUND_TEST(a_failure_that_tells_of_none_ends_its_member_only)
{
    static const uint8_t causes[] = {CT_CAUSE_NONE, CT_CAUSE_STOPPED, CT_CAUSE_EARLY};

    for (size_t i = 0; i < sizeof causes; i++) {
        struct round *round = start(2, 3, 1);
        const struct ct_stopping answer = {.generation = 1};

        report(round, 2, causes[i], 0);
        assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
        assert_int_equal(round->refuse.code, CTRUN_E_PROTOCOL);
        say(round, 1, CT_MESSAGE_STOPPING, &answer, 0);
        say(round, 3, CT_MESSAGE_STOPPING, &answer, 0);
        assert_int_equal(round->stop.cause.cause, CT_CAUSE_NODE_LOST);
        stopped(round, 1, 0);
        stopped(round, 3, 0);
        assert_int_equal(round->state, ROUND_FORMING);
    }
}

ROUND_TEST(the_fingerprint_goes_with_the_last_node_that_had_it)
{
    struct round *round = create(2, 2, 0);
    struct ct_join message = {0};

    for (uint64_t id = 1; id <= 3; id++)
        add(round, id, 0);
    join(round, 1, 0);
    message = (struct ct_join){.slots = 1, .store_port = 9, .fingerprint = 5};
    say(round, 2, CT_MESSAGE_JOIN, &message, 0);
    assert_int_equal(round->refuse.code, CTRUN_E_FINGERPRINT);
    gone(round, 1, 0);
    say(round, 3, CT_MESSAGE_JOIN, &message, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 0);
}

static void add_job(struct round *round, uint64_t id, const struct ct_job *job)
{
    struct member_link link = {.id = id, .host = "n", .job = *job};

    assert_int_equal(
        round_step(round, &(struct round_command){.kind = ROUND_ADD, .link = &link}, 0),
        0);
}

ROUND_TEST(two_unlike_jobs_at_one_endpoint_do_not_become_one)
{
    static const struct {
        uint32_t max;
        struct ct_job first, second;
        const char *role; /* of the second node; NULL: as the first */
        int code;
    } rows[] = {
        {2, {"a.py", "u", 0, 0}, {"b.py", "u", 0, 0}, NULL, CTRUN_E_OTHER_JOB},
        {2, {"a.py", "u", 0, 0}, {"a.py", "v", 0, 0}, NULL, CTRUN_E_OTHER_JOB},
        {2, {"a.py", "u", 0, 0}, {"a.py", "u", 0, 0}, NULL, 0},
        {2, {"a.py", "u", 0, 0}, {"b.py", "u", 0, 0}, "reader", 0},
        {2,
         {"", "u", 0, 0},
         {"b.py", "v", 0, 0},
         NULL,
         0}, /* equal because of the run id */
        {1, {"a.py", "u", 1, 0}, {"a.py", "u", 1, 0}, NULL, CTRUN_E_OTHER_JOB},
        {1, {"a.py", "u", 1, 0}, {"a.py", "u", 0, 0}, NULL, 0}, /* a spare */
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct round *round = create(rows[i].max, rows[i].max, 0);
        struct ct_join message = {.slots = 1, .node_rank_hint = -1, .store_port = 9};

        add_job(round, 1, &rows[i].first);
        add_job(round, 2, &rows[i].second);
        join(round, 1, 0);
        if (rows[i].role)
            (void)ct_copy(message.role, sizeof message.role, rows[i].role);
        say(round, 2, CT_MESSAGE_JOIN, &message, 0);
        assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), rows[i].code != 0);
        if (rows[i].code)
            assert_int_equal(round->refuse.code, rows[i].code);
    }
}

ROUND_TEST(
    two_files_of_one_name_are_two_jobs_where_both_are_known_and_no_run_id_joins_them)
{
    static const struct {
        const char *name; /* "": there is a run id */
        uint64_t first, second;
        uint64_t reload;
        bool is_reader; /* the second one */
        int code;
    } rows[] = {
        {"a.py", 1, 2, 0, false, CTRUN_E_OTHER_JOB},
        {"a.py", 1, 1, 0, false, 0},
        {"a.py", 0, 2, 0, false, 0},
        {"a.py", 1, 0, 0, false, 0},
        {"a.py", 1, 2, 0, true, 0},
        {"a.py", 1, 2, 1, false, 0}, /* both were not started with what runs now */
        {"", 1, 2, 0, false, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct round *round = create(3, 3, 0);
        struct ct_join message = {.slots = 1, .node_rank_hint = -1, .store_port = 9};
        struct ct_job job = {.user = "u"};

        (void)ct_copy(job.program, sizeof job.program, rows[i].name);
        add_job(round, 1, &job);
        add_job(round, 2, &job);
        round->reload.number = rows[i].reload;
        message.program = rows[i].first;
        say(round, 1, CT_MESSAGE_JOIN, &message, 0);
        message.program = rows[i].second;
        (void)ct_copy(message.role, sizeof message.role,
                      rows[i].is_reader ? "reader" : "");
        say(round, 2, CT_MESSAGE_JOIN, &message, 0);
        assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), rows[i].code != 0);
        assert_int_equal(round->refuse.code, rows[i].code);
    }
}

ROUND_TEST(waiting_is_told_at_most_once_a_second)
{
    struct round *round = create(50, 50, 0);
    size_t told = 0;

    for (uint64_t id = 1; id <= 40; id++)
        add(round, id, 1);
    for (uint64_t id = 1; id <= 40; id++) {
        join(round, id, id);
        told += count_actions(round, ROUND_SEND_WAITING);
    }
    assert_int_equal(told, 1); /* at once after the first JOIN */
    assert_int_equal(round_next_ms(round), 1001);
    tick(round, 1001);
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 40);
    assert_int_equal(round->waiting.joined, 40);
    assert_int_equal(round->waiting.left_ms, 59000);
    tick(round, 2500);
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 0); /* no change */
}

ROUND_TEST(who_waits_for_more_than_is_needed_knows_until_when)
{
    struct round *round = create(1, 2, 1);

    add(round, 1, 0);
    add(round, 2, 0);
    join(round, 1, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 1);
    assert_int_equal(round->waiting.left_ms, 1000); /* until the last call ends */
    join(round, 2, 10);
    report(round, 2, CT_CAUSE_EXIT, 20);
    stopped(round, 1, 30);
    stopped(round, 2, 30);
    join(round, 1, 40);
    assert_int_equal(round->state, ROUND_FORMING);
    assert_int_equal(round->waiting.joined, 1);
    assert_int_equal(round->waiting.left_ms, 59990); /* the join deadline */
}

ROUND_TEST(nodes_are_waited_for_in_multiples_of_the_node_unit)
{
    struct round *round = create(3, 5, 0);

    round->settings.node_unit = 2;
    add(round, 1, 0);
    join(round, 1, 0);
    assert_int_equal(round->waiting.min_nodes, 4);
    assert_int_equal(round->waiting.max_nodes, 4);
}

ROUND_TEST(endless_timeouts_do_not_wrap_around)
{
    const struct round_settings settings = {.min_nodes = 1,
                                            .max_nodes = 2,
                                            .join_timeout_ms = UINT64_MAX,
                                            .last_call_ms = UINT64_MAX - 1,
                                            .lost_after_ms = 5000};
    struct round *round = make(&settings);

    add(round, 1, 1000);
    join(round, 1, 1000);
    tick(round, 5000);
    assert_int_equal(round->state, ROUND_FORMING);
    assert_int_equal(round->members.count, 1);
}

ROUND_TEST(the_static_endpoint_replaces_the_store_port)
{
    const struct round_settings settings = {.min_nodes = 1,
                                            .max_nodes = 1,
                                            .join_timeout_ms = 1000,
                                            .lost_after_ms = 5000,
                                            .endpoint_port = 29500};
    struct round *round = make(&settings);

    add(round, 1, 0);
    join(round, 1, 0);
    assert_int_equal(round->start.master_port, 29500);
}

ROUND_TEST(an_unkillable_worker_ends_the_run_whatever_the_budget)
{
    struct round *round = start(1, 2, 9);

    report(round, 1, CT_CAUSE_UNKILLABLE, 10);
    assert_int_equal(round->stop.is_final, 1);
    stopped(round, 1, 20);
    stopped(round, 2, 20);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_int_equal(round->verdict.exit_code, 76);
}

ROUND_TEST(the_status_is_that_of_what_failed_before_an_unkillable_worker)
{
    struct round *round = start(1, 2, 9);

    report(round, 1, CT_CAUSE_OOM, 10);
    report(round, 1, CT_CAUSE_UNKILLABLE, 20);
    stopped(round, 1, 30);
    stopped(round, 2, 30);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_int_equal(round->verdict.exit_code, 137);
}

/* A process lives on: the next world would not be alone. The worker that failed before is the cause, in
 * whichever order the node lists them. */
ROUND_TEST(an_unkillable_worker_that_is_not_the_cause_ends_the_run_as_well)
{
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t nodes = 1 + i / 2, first = i % 2;
        struct round *round = start(1, nodes, 9);
        struct ct_stopped body = {.generation = 1, .failure_count = 2};

        body.failures[first] = (struct ct_failure){
            .generation = 1, .cause = CT_CAUSE_UNKILLABLE, .rank = 0, .age_ms = 10};
        body.failures[!first] = (struct ct_failure){.generation = 1,
                                                    .cause = CT_CAUSE_EXIT,
                                                    .rank = 1,
                                                    .code = 7,
                                                    .age_ms = 60000};
        say(round, 1, CT_MESSAGE_STOPPED, &body, 100000);
        if (nodes == 2)
            stopped(round, 2, 100010);
        assert_int_equal(round->state, ROUND_CLOSED);
        assert_int_equal(round->verdict.outcome, CT_OUTCOME_FAILED);
        assert_int_equal(round->verdict.exit_code, 7);
        assert_int_equal(round->verdict.failure_count, 2);
        assert_int_equal(round->verdict.failures[0].cause, CT_CAUSE_EXIT);
    }
}

ROUND_TEST(what_fails_after_a_loss_is_its_consequence_and_costs_nothing)
{
    struct round *round = start(1, 2, 0);
    const struct ct_heartbeat beat = {0};

    gone(round, 2, 100);
    assert_int_equal(round->stop.reason, CT_STOP_NODE_LOST);
    report(round, 1, CT_CAUSE_EXIT, 110); /* as after "connection reset by peer" */
    stopped(round, 1, 200);
    join(round, 1, 300);
    say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, 5000);
    tick(round, round_outlive_ms(5000) - 1); /* member 2 was last heard at 0 */
    assert_int_equal(round->state, ROUND_FORMING);
    assert_int_equal(round_next_ms(round), round_outlive_ms(5000));
    tick(round, round_outlive_ms(5000));
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->restart_count, 0);
}

static void answer(struct round *round, uint64_t id, uint64_t now_ms)
{
    const struct ct_stopping message = {.generation = round->generation};

    say(round, id, CT_MESSAGE_STOPPING, &message, now_ms);
}

ROUND_TEST(a_failure_is_decided_when_all_others_have_answered)
{
    struct round *round = start(1, 3, 1);
    const struct ct_heartbeat beat = {0};

    report(round, 1, CT_CAUSE_EXIT, 10);
    assert_int_equal(round->stop.reason, CT_STOP_UNDECIDED);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 3);
    answer(round, 2, 11);
    /* Sent before the STOP arrived: it is no answer. */
    say(round, 3, CT_MESSAGE_HEARTBEAT, &beat, 11);
    assert_true(round->is_undecided);
    answer(round, 3, 12);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 3);
    assert_int_equal(round->stop.reason, CT_STOP_FAILURE);
    assert_int_equal(round->stop.restart_count, 1);
    answer(round, 3, 13);
    assert_int_equal(round->action_count, 0);
}

ROUND_TEST(a_member_lost_before_it_answered_is_the_root_cause)
{
    struct round *round = start(1, 3, 0);

    report(round, 1, CT_CAUSE_EXIT, 10);
    stopped(round, 1, 11);
    join(round, 1, 12);
    gone(round, 3, 13);
    /* Also to the member that has joined. */
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 2);
    assert_int_equal(round->stop.reason, CT_STOP_NODE_LOST);
    assert_string_equal(round->stop.cause.host, "n3");
    assert_int_equal(round->stop.is_final, 0);
    assert_string_equal(failures_get_root(&round->failures)->host, "n3");
}

ROUND_TEST(a_lone_node_needs_no_answer)
{
    struct round *round = start(1, 1, 0);

    report(round, 1, CT_CAUSE_EXIT, 10);
    assert_int_equal(round->stop.reason, CT_STOP_FAILURE);
    assert_int_equal(round->stop.is_final, 1);
    stopped(round, 1, 11);
    assert_int_equal(round->verdict.exit_code, 7);
}

/* Early failures of member 1, which is alone in its world, until the run is over. */
static uint32_t fail_early(struct round *round, uint8_t cause, int32_t code)
{
    struct ct_failure message = {0};
    uint32_t tries = 0;

    for (uint64_t now_ms = 10; round->state == ROUND_RUNNING; now_ms += 10, tries++) {
        message = (struct ct_failure){.generation = round->generation,
                                      .cause = cause,
                                      .code = code,
                                      .step = -1,
                                      .may_loop = 1};
        say(round, 1, CT_MESSAGE_FAILURE, &message, now_ms);
        stopped(round, 1, now_ms + 1);
        if (round->state == ROUND_FORMING)
            join(round, 1, now_ms + 2);
    }
    return tries;
}

ROUND_TEST(the_same_early_failure_twice_ends_the_run)
{
    struct round *round = start(1, 1, 5);

    assert_int_equal(fail_early(round, CT_CAUSE_EXIT, 3), 2);
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_CRASH_LOOP);
    assert_int_equal(round->verdict.exit_code, 3);
    assert_int_equal(round->verdict.restart_count, 1);
    assert_int_equal(round->stop.is_final, 1);
}

/* Member 2 fails first; all nodes stop, and only node 2 joins again. */
static void fail_on_second_node(struct round *round, uint64_t now_ms)
{
    const struct ct_failure message = {.generation = round->generation,
                                       .cause = CT_CAUSE_SIGNAL,
                                       .code = 11,
                                       .rank = 1,
                                       .node_rank = 1,
                                       .may_loop = 1};

    say(round, 2, CT_MESSAGE_FAILURE, &message, now_ms);
    answer(round, 1, now_ms);
    stopped(round, 2, now_ms);
    join(round, 2, now_ms);
    stopped(round, 1, now_ms);
}

static void tell(struct round *round, uint64_t id, int32_t code, uint64_t age_ms,
                 uint64_t now_ms)
{
    const struct ct_failure message = {.generation = round->generation,
                                       .cause = CT_CAUSE_EXIT,
                                       .code = code,
                                       .rank = (int32_t)id - 1,
                                       .node_rank = (int32_t)id - 1,
                                       .may_loop = 1,
                                       .age_ms = age_ms};

    say(round, id, CT_MESSAGE_FAILURE, &message, now_ms);
}

/* Node 1 reports first, each time a different failure, which follows from that of node 2. */
static void fail_on_second_node_late(struct round *round, uint64_t now_ms)
{
    tell(round, 1, (int32_t)(now_ms / 1000), 1, now_ms);
    assert_int_equal(round->stop.reason, CT_STOP_UNDECIDED);
    tell(round, 2, 5, 1000, now_ms + 300);
    answer(round, 2, now_ms + 300);
    assert_int_equal(round->stop.reason, CT_STOP_FAILURE);
    assert_int_equal(round->stop.cause.rank, 1);
    stopped(round, 2, now_ms + 400);
    join(round, 2, now_ms + 400);
    stopped(round, 1, now_ms + 400);
}

ROUND_TEST(who_failed_first_but_tells_late_is_charged)
{
    struct round *round = start(2, 2, 5);

    fail_on_second_node_late(round, 1200);
    assert_int_equal(round->restart_count, 1);
    join(round, 1, 1700);
    fail_on_second_node_late(round, 2400);
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_CRASH_LOOP);
    assert_int_equal(round->verdict.exit_code, 5);
    assert_int_equal(round->verdict.failures[0].rank, 1);
    assert_int_equal(round->verdict.failures[1].rank, 0);
    assert_int_equal(round->verdict.failures[1].later_ms, 699);
}

ROUND_TEST(what_is_told_after_the_decision_changes_it_no_more)
{
    struct round *round = start(2, 2, 0);

    tell(round, 1, 4, 1, 10000);
    answer(round, 2, 10001);
    assert_int_equal(round->stop.cause.rank, 0);
    tell(round, 2, 5, 9000, 10002);
    stopped(round, 2, 10003);
    stopped(round, 1, 10003);
    assert_int_equal(round->verdict.exit_code, 4);
    assert_int_equal(round->verdict.failures[0].rank, 0);
}

/* The server was busy: both messages had arrived, and it read them one after the other. */
ROUND_TEST(how_long_a_message_lay_unread_counts)
{
    struct round *round = start(2, 2, 0);
    const struct ct_failure failure = {
        .generation = 1, .cause = CT_CAUSE_EXIT, .code = 4, .age_ms = 1};
    const struct round_command command = {
        .kind = ROUND_MESSAGE,
        .id = 1,
        .message = &(struct ct_message){CT_MESSAGE_FAILURE, .failure = &failure},
        .waited_ms = 2000};

    assert_int_equal(round_step(round, &command, 10000), 0);
    tell(round, 2, 5, 1000, 10000);
    answer(round, 2, 10000);
    assert_int_equal(round->stop.cause.code, 4);
}

/* Another server of this run may have started workers: a last call that ends earlier is put off. */
ROUND_TEST(a_first_world_that_waits_for_workers_of_another_server_says_so)
{
    static const uint64_t last_calls[] = {1000, 9000};

    for (size_t i = 0; i < 2; i++) {
        const struct round_settings settings = {.min_nodes = 1,
                                                .max_nodes = 2,
                                                .join_timeout_ms = 60000,
                                                .last_call_ms = last_calls[i],
                                                .found_after_ms = 7000,
                                                .lost_after_ms = 60000};
        struct round *round = make(&settings);

        add(round, 1, 10);
        join(round, 1, 10);
        assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 1);
        assert_int_equal(round->waiting.held_ms, i == 0 ? 6990 : 0);
        tick(round, 7000);
        assert_int_equal(round->state, i == 0 ? ROUND_RUNNING : ROUND_FORMING);
    }
}

static struct round *start_with_spare(void)
{
    struct round *round = create(2, 2, 5);

    for (uint32_t id = 1; id <= 3; id++)
        add(round, id, 0);
    for (uint32_t id = 1; id <= 3; id++)
        join(round, id, 0);
    assert_int_equal(round->world_count, 2);
    return round;
}

ROUND_TEST(a_node_that_fails_first_twice_makes_room_for_a_spare)
{
    struct round *round = start_with_spare();

    fail_on_second_node(round, 10);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_NONE);
    join(round, 1, 20);
    assert_int_equal(round->generation, 2);
    fail_on_second_node(round, 30);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_EXCLUDED);
    assert_string_equal(round->stop.culprit, "n2");
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(round->refuse.code, CTRUN_E_EXCLUDED);
    join(round, 1, 40);
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->generation, 3);
    assert_int_equal(round->restart_count, 2);
    assert_int_equal(round->members.count, 2);
    assert_int_equal(round->members.list[1]->link.id, 3);
}

/* As when a rank of PyTorch ends itself because a collective timed out. */
ROUND_TEST(a_node_whose_worker_lost_another_rank_makes_no_room)
{
    struct round *round = start_with_spare();

    for (uint64_t now_ms = 10; now_ms < 50; now_ms += 20) {
        const struct ct_failure failure = {.generation = round->generation,
                                           .cause = CT_CAUSE_SIGNAL,
                                           .code = SIGABRT,
                                           .error = CTRUN_E_PEER_LOST,
                                           .rank = 1,
                                           .node_rank = 1};

        say(round, 2, CT_MESSAGE_FAILURE, &failure, now_ms);
        answer(round, 1, now_ms);
        assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_NONE);
        for (uint64_t id = 1; id <= 2; id++) {
            stopped(round, id, now_ms);
            join(round, id, now_ms);
        }
    }
    assert_int_equal(round->restart_count, 2);
    assert_int_equal(round->members.count, 3);
}

ROUND_TEST(the_node_that_serves_makes_room_for_nobody)
{
    struct round *round = start_with_spare();

    round->members.list[1]->link.serves = true;
    fail_on_second_node(round, 10);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_NONE);
    join(round, 1, 20);
    fail_on_second_node(round, 30);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_KEPT);
    assert_string_equal(round->stop.culprit, "n2");
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 0);
    assert_int_equal(round->members.count, 3);
    /* As without a spare. */
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_CRASH_LOOP);
}

ROUND_TEST(a_node_that_fails_first_and_tells_late_makes_room_as_well)
{
    struct round *round = start_with_spare();

    fail_on_second_node_late(round, 1200);
    join(round, 1, 1700);
    fail_on_second_node_late(round, 2400);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_EXCLUDED);
    assert_string_equal(round->stop.culprit, "n2");
}

/* A failure of member `id`, which is node id - 1, with evidence of broken hardware. */
static void fail_of_hardware(struct round *round, uint64_t id, uint64_t now_ms)
{
    struct ct_failure message = {.generation = round->generation,
                                 .cause = CT_CAUSE_EXIT,
                                 .code = (int32_t)now_ms % 100,
                                 .rank = (int32_t)id - 1,
                                 .node_rank = (int32_t)id - 1};

    assert_true(ct_facts_add(&message.facts, CT_FACT_HARDWARE, "Xid 79"));
    say(round, id, CT_MESSAGE_FAILURE, &message, now_ms);
    for (uint64_t other = 1; other <= 3; other++)
        if (other != id && member_find(&round->members, other))
            answer(round, other, now_ms);
    stopped(round, id, now_ms);
    join(round, id, now_ms);
    for (uint64_t other = 1; other <= 3; other++)
        if (other != id && member_find(&round->members, other)) {
            stopped(round, other, now_ms);
            join(round, other, now_ms);
        }
}

static struct round *start_three(uint32_t min, uint64_t exclude_after)
{
    struct round *round = start(min, 3, 9);

    round->settings.exclude_after = exclude_after;
    return round;
}

ROUND_TEST(a_node_with_broken_hardware_goes_without_a_spare)
{
    struct round *round = start_three(2, 2);
    const struct ct_join back = {.slots = 1, .node_rank_hint = -1, .store_port = 9};

    fail_of_hardware(round, 2, 10);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_NONE);
    assert_int_equal(round->generation, 2);
    fail_of_hardware(round, 2, 20);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_BROKEN);
    assert_string_equal(round->stop.culprit, "n2");
    assert_int_equal(round->refuse.code, CTRUN_E_EXCLUDED);
    assert_non_null(strstr(round->refuse.text, "--exclude-node-after"));
    assert_int_equal(round->members.count, 2);
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->restart_count, 2);
    /* Another agent of that host is refused, an agent of another host is not. */
    for (uint64_t id = 4; id <= 5; id++) {
        struct member_link link = {.id = id};

        (void)ct_format(link.host, sizeof link.host, "n%d", id == 4 ? 2 : 9);
        assert_int_equal(
            round_step(round, &(struct round_command){.kind = ROUND_ADD, .link = &link},
                       30),
            0);
        say(round, id, CT_MESSAGE_JOIN, &back, 30);
        assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), id == 4);
    }
}

ROUND_TEST(a_broken_node_that_comes_back_late_stops_no_world)
{
    struct round *round = start_three(2, 1);
    const struct ct_join back = {.slots = 1, .node_rank_hint = -1, .store_port = 9};
    struct ct_failure failure = {
        .generation = 1, .cause = CT_CAUSE_EXIT, .code = 3, .rank = 1, .node_rank = 1};

    round->settings.join_timeout_ms = 1000;
    assert_true(ct_facts_add(&failure.facts, CT_FACT_HARDWARE, "Xid 79"));
    say(round, 2, CT_MESSAGE_FAILURE, &failure, 10);
    for (uint64_t id = 1; id <= 3; id++) {
        if (id != 2)
            answer(round, id, 10);
        stopped(round, id, 10);
    }
    join(round, 1, 20);
    join(round, 3, 20);
    tick(round, 2000); /* the join deadline */
    assert_int_equal(round->generation, 2);
    assert_int_equal(round->world_count, 2);
    say(round, 2, CT_MESSAGE_JOIN, &back, 2010);
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(round->refuse.code, CTRUN_E_EXCLUDED);
    assert_int_equal(round->members.count, 2);
    assert_int_equal(round->missing.count, 0);
}

/* As a new one of the same instance, after all its nodes were lost. */
ROUND_TEST(a_run_that_goes_on_does_not_take_a_broken_node_back)
{
    const struct ct_join back = {.slots = 1, .node_rank_hint = -1, .store_port = 9};

    for (uint64_t exclude_after = 0; exclude_after <= 2; exclude_after += 2) {
        struct round *round = start_three(2, 2);
        struct round *next = create(2, 3, 9);
        struct member_link link = {.id = 7, .host = "n2"};

        fail_of_hardware(round, 2, 10);
        fail_of_hardware(round, 2, 20);
        assert_string_equal(round->stop.culprit, "n2");
        tick(round, 6000);
        assert_true(round_is_deserted(round));
        next->settings.exclude_after = exclude_after; /* 0: it was started without */
        round_succeed(next, round);
        assert_int_equal(
            round_step(next, &(struct round_command){.kind = ROUND_ADD, .link = &link},
                       6000),
            0);
        say(next, 7, CT_MESSAGE_JOIN, &back, 6000);
        assert_int_equal(count_actions(next, ROUND_SEND_REFUSE), exclude_after > 0);
    }
}

ROUND_TEST(a_broken_node_that_is_needed_stays_and_that_is_said)
{
    struct round *round = start_three(3, 1);

    fail_of_hardware(round, 3, 10);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_BROKEN_NEEDED);
    assert_string_equal(round->stop.culprit, "n3");
    assert_int_equal(round->members.count, 3);
    assert_int_equal(round->generation, 2);
}

ROUND_TEST(a_broken_node_that_serves_stays)
{
    struct round *round = start_three(2, 1);

    round->members.list[0]->link.serves = true;
    fail_of_hardware(round, 1, 10);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_BROKEN_KEPT);
    assert_int_equal(round->members.count, 3);
}

ROUND_TEST(faults_are_counted_for_each_node_and_only_where_they_count)
{
    struct round *round = start_three(2, 2);

    fail_of_hardware(round, 2, 10);
    fail_of_hardware(round, 3, 20); /* another node */
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_NONE);
    fail_of_hardware(round, 2, 30);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_BROKEN);
    round = start_three(2, 0);
    for (uint64_t now_ms = 10; now_ms < 60; now_ms += 10)
        fail_of_hardware(round, 2, now_ms);
    assert_int_equal(round->stop.culprit_fate, CT_CULPRIT_NONE);
    assert_int_equal(round->members.count, 3);
}

ROUND_TEST(without_a_spare_the_node_stays_and_a_crash_loop_is_one)
{
    struct round *round = start(2, 2, 5);

    fail_on_second_node(round, 10);
    join(round, 1, 20);
    fail_on_second_node(round, 30);
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_CRASH_LOOP);
}

/* Its connection was broken when they failed: the report at the end is the first one. */
ROUND_TEST(all_failures_of_the_only_node_are_known_before_the_decision)
{
    static const struct ct_stopped report = {
        .generation = 1,
        .failure_count = 3,
        .failures = {{.generation = 1,
                      .cause = CT_CAUSE_EXIT,
                      .code = 7,
                      .error = CTRUN_E_PEER_LOST},
                     {.generation = 1, .cause = CT_CAUSE_EXIT, .code = 9, .rank = 1},
                     {.generation = 1, .cause = CT_CAUSE_STOPPED, .rank = 2}}};
    struct round *round = start(1, 1, 0);

    say(round, 1, CT_MESSAGE_STOPPED, &report, 0);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_int_equal(round->verdict.failure_count, 3);
    assert_int_equal(round->verdict.failures[0].rank, 1);
    assert_int_equal(round->verdict.exit_code, 9);

    round = start(1, 1, 1);
    say(round, 1, CT_MESSAGE_STOPPED, &report, 0);
    assert_int_equal(round->state, ROUND_FORMING);
    assert_int_equal(round->restart_count, 1);
    assert_int_equal(round->stop.cause.rank, 1);
}

ROUND_TEST(a_program_that_is_missing_is_not_started_again)
{
    struct round *round = start(1, 1, 5);

    assert_int_equal(fail_early(round, CT_CAUSE_EXEC, ENOENT), 1);
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_FAILED);
    assert_int_equal(round->verdict.exit_code, 127);
}

ROUND_TEST(who_ended_early_with_zero_is_told_and_no_cause)
{
    struct round *round = start(1, 2, 0);
    const struct ct_stopped body = {
        .generation = 1,
        .failure_count = 1,
        .failures = {{.generation = 1, .cause = CT_CAUSE_EARLY, .rank = 1, .pid = 5}}};

    report(round, 1, CT_CAUSE_EXIT, 10);
    say(round, 2, CT_MESSAGE_STOPPED, &body, 20);
    stopped(round, 1, 20);
    assert_int_equal(round->verdict.failure_count, 2);
    assert_int_equal(round->verdict.failures[0].cause, CT_CAUSE_EXIT);
    assert_int_equal(round->verdict.failures[1].cause, CT_CAUSE_EARLY);
}

/* Two nodes with two addresses each, which must prove that they reach each other. */
static struct round *start_with_networks(void)
{
    struct round *round = create(2, 2, 1);

    for (uint64_t id = 1; id <= 2; id++) {
        struct member_link link = {.id = id};
        struct ct_join message = {0};

        snprintf(link.host, sizeof link.host, "n%d", (int)id);
        snprintf(link.seen_as, sizeof link.seen_as, "10.77.0.%d", (int)id);
        assert_int_equal(
            round_step(round, &(struct round_command){.kind = ROUND_ADD, .link = &link},
                       0),
            0);
        message = (struct ct_join){
            .slots = 1, .node_rank_hint = -1, .store_port = 9, .addr_count = 1};
        snprintf(message.addrs[0], sizeof message.addrs[0], "10.78.0.%d", (int)id);
        say(round, id, CT_MESSAGE_JOIN, &message, 0);
    }
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->start.reach, CT_REACH_PROVE);
    return round;
}

static const struct ct_start *start_of(const struct round *round, uint64_t id)
{
    static struct ct_start start;

    round_copy_start(&start, round, member_find(&round->members, id));
    return &start;
}

ROUND_TEST(only_the_first_node_hears_which_ones_run_another_program)
{
    struct round *round = create(3, 3, 0);

    for (uint32_t id = 1; id <= 3; id++)
        add(round, id, 0);
    for (uint32_t id = 1; id <= 3; id++)
        say(round, id, CT_MESSAGE_JOIN,
            &(struct ct_join){
                .slots = 1, .node_rank_hint = -1, .store_port = 9, .program = id},
            0);
    assert_string_equal(start_of(round, 3)->unlike, "");
    assert_string_equal(start_of(round, 1)->unlike, "n2, n3");
    for (uint32_t id = 1; id <= 3; id++) /* as after a restore from a journal */
        round_set_start(round, member_find(&round->members, id), start_of(round, id));
    assert_string_equal(start_of(round, 1)->unlike, "n2, n3");
}

static void say_reachability(struct round *round, uint64_t id, const char *cut)
{
    struct ct_reachability message = {.generation = round->generation};

    (void)ct_copy(message.cut, sizeof message.cut, cut);
    say(round, id, CT_MESSAGE_REACHABILITY, &message, 10);
}

ROUND_TEST(workers_start_once_all_have_proven_their_ways)
{
    struct round *round = start_with_networks();

    say_reachability(round, 1, "");
    assert_int_equal(count_actions(round, ROUND_SEND_REACHABILITY), 0);
    say_reachability(round, 2, "");
    assert_int_equal(count_actions(round, ROUND_SEND_REACHABILITY), 2);
    assert_int_equal(round->reachability.generation, 1);
    say_reachability(round, 1, ""); /* sent again: it may have missed the answer */
    assert_int_equal(count_actions(round, ROUND_SEND_REACHABILITY), 2);
}

ROUND_TEST(a_cut_network_costs_a_round_and_no_restart)
{
    struct round *round = start_with_networks();

    say_reachability(round, 1, "");
    say_reachability(round, 2, "cannot reach n1");
    assert_int_equal(round->state, ROUND_STOPPING);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 2);
    assert_int_equal(round->stop.reason, CT_STOP_NETWORK);
    assert_int_equal(round->stop.restart_count, 0);
    assert_string_equal(round->stop.cause.host, "n2");
    assert_string_equal(round->stop.cause.text, "cannot reach n1");
}

ROUND_TEST(a_cut_of_the_only_network_left_starts_the_workers)
{
    struct round *round = start_with_networks();

    assert_true(networks_cut(&round->networks, "10.77.0.1")); /* another node did */
    say_reachability(round, 1, "cannot reach n2");
    assert_int_equal(round->state, ROUND_RUNNING);
    say_reachability(round, 2, "");
    assert_int_equal(count_actions(round, ROUND_SEND_REACHABILITY), 2);
}

/* ---- a rank is lost, and the others continue ---- */

static void lose(struct round *round, uint64_t id, int32_t rank)
{
    const struct ct_loss message = {
        .generation = round->generation, .rank = rank, .text = "gone"};

    say(round, id, CT_MESSAGE_LOSS, &message, 10);
}

/* Member `id` has rank id - 1, if any. */
static void stand_still(struct round *round, uint64_t id, uint32_t epoch, bool has_rank)
{
    struct ct_still message = {.generation = round->generation, .epoch = epoch};

    if (has_rank)
        message.ranks[0] = (uint8_t)(1u << (id - 1));
    say(round, id, CT_MESSAGE_STILL, &message, 10);
}

static void assert_world(const struct round *round, uint32_t epoch, uint8_t ranks,
                         size_t told)
{
    assert_int_equal(count_actions(round, ROUND_SEND_WORLD), told);
    assert_int_equal(round->world.epoch, epoch);
    assert_int_equal(round->world.ranks[0], ranks);
    assert_int_equal(round->state, ROUND_RUNNING);
}

ROUND_TEST(who_goes_on_is_told_once_every_node_stands_still)
{
    struct round *round = start(2, 3, 0);

    lose(round, 2, 1);
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 3);
    assert_int_equal(round->loss.losses, 1);
    stand_still(round, 1, 0, true);
    stand_still(round, 1, 0, true); /* counts once */
    stand_still(round, 2, 0, false);
    assert_world(round, 0, 0, 0);
    stand_still(round, 3, 0, true);
    assert_world(round, 1, 5, 3);
    assert_int_equal(round->world.losses, 1);
    assert_int_equal(round->generation, 1);
    stand_still(round, 1, 0, true); /* of the world before */
    stand_still(round, 2, 1, false);
    stand_still(round, 3, 1, true);
    assert_world(round, 1, 5, 0);
    stand_still(round, 1, 1, true); /* no rank is lost: they have lost a connection */
    assert_world(round, 2, 5, 3);
}

ROUND_TEST(a_loss_takes_back_that_its_node_stands_still)
{
    struct round *round = start(2, 3, 0);

    lose(round, 2, 1);
    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, false);
    lose(round, 1, 0);
    stand_still(round, 3, 0, true);
    assert_world(round, 0, 0, 0);
    stand_still(round, 1, 0, false);
    assert_world(round, 1, 4, 3);
    assert_int_equal(round->world.losses, 2);
}

ROUND_TEST(a_loss_that_is_told_again_counts_once)
{
    struct round *round = start(2, 2, 0);

    lose(round, 2, 1);
    stand_still(round, 2, 0, false);
    lose(round, 2, 1);
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 0);
    stand_still(round, 1, 0, true);
    assert_world(round, 1, 1, 2);
}

ROUND_TEST(a_node_that_has_succeeded_is_not_waited_for)
{
    struct round *round = start(2, 3, 0);
    const struct ct_succeeded succeeded = {.generation = 1};

    lose(round, 2, 1);
    stand_still(round, 2, 0, false);
    stand_still(round, 1, 0, true);
    stand_still(round, 3, 0, true);
    assert_world(round, 1, 5, 3);
    stand_still(round, 1, 1, true);
    say(round, 2, CT_MESSAGE_SUCCEEDED, &succeeded, 10); /* no rank of it is left */
    assert_world(round, 1, 5, 0);
    say(round, 3, CT_MESSAGE_SUCCEEDED, &succeeded, 10);
    assert_world(round, 2, 1, 1);
}

static void grow(struct round *round, uint64_t id, int32_t rank)
{
    const struct ct_grow message = {.generation = round->generation, .rank = rank};

    say(round, id, CT_MESSAGE_GROW, &message, 10);
}

/* Rank 1 of three is lost, and a world without it starts. */
static struct round *start_smaller(void)
{
    struct round *round = start(2, 3, 0);

    lose(round, 2, 1);
    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, false);
    stand_still(round, 3, 0, true);
    assert_world(round, 1, 5, 3);
    return round;
}

ROUND_TEST(one_in_the_place_of_a_lost_rank_is_told_and_is_in_the_next_world)
{
    struct round *round = start_smaller();

    grow(round, 2, 1);
    assert_int_equal(count_actions(round, ROUND_SEND_GROW), 3);
    assert_int_equal(round->grow.rank, 1);
    stand_still(round, 2, 1, true);
    stand_still(round, 1, 1, true);
    assert_world(round, 1, 5, 0);
    stand_still(round, 3, 1, true);
    assert_world(round, 2, 7, 3);
    grow(round, 2, 1); /* sent again after a break */
    assert_int_equal(count_actions(round, ROUND_SEND_GROW), 0);
    lose(round, 2, 1); /* lost as any other rank */
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 3);
}

ROUND_TEST(one_that_is_lost_while_it_waits_is_in_no_world)
{
    struct round *round = start_smaller();

    grow(round, 2, 1);
    stand_still(round, 2, 1, true);
    stand_still(round, 1, 1, true);
    lose(round, 2, 1);
    assert_int_equal(round->loss.losses, 2);
    stand_still(round, 3, 1, true);
    assert_world(round, 1, 5, 0);
    stand_still(round, 2, 1, false);
    assert_world(round, 2, 5, 3);
}

ROUND_TEST(a_rank_of_another_node_cannot_be_grown)
{
    struct round *round = start_smaller();

    grow(round, 3, 1);
    assert_int_equal(count_actions(round, ROUND_SEND_GROW), 0);
    assert_int_equal(round->refuse.code, CTRUN_E_PROTOCOL);
}

ROUND_TEST(a_lost_node_stops_those_that_wait)
{
    struct round *round = start(2, 3, 0);

    lose(round, 2, 1);
    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, false);
    gone(round, 3, 10);
    assert_int_equal(round->state, ROUND_STOPPING);
    assert_int_equal(round->stop.reason, CT_STOP_NODE_LOST);
    stand_still(round, 1, 0, true);
    lose(round, 1, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_WORLD), 0);
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 0);
}

ROUND_TEST(a_new_world_knows_of_no_loss)
{
    struct round *round = start(2, 2, 0);

    lose(round, 2, 1);
    stand_still(round, 2, 0, false);
    stand_still(round, 1, 0, true);
    report(round, 1, CT_CAUSE_NODE_LOST, 20);
    stopped(round, 1, 30);
    stopped(round, 2, 30);
    join(round, 1, 40);
    join(round, 2, 40);
    assert_int_equal(round->generation, 2);
    assert_world(round, 0, 0, 0);
    assert_int_equal(round->loss.losses, 0);
    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, true); /* the rank that was lost before */
    assert_world(round, 1, 3, 2);
}

ROUND_TEST(ranks_of_other_nodes_are_refused)
{
    static const int32_t bad[] = {-1, 0, 2, 1 << 20, INT32_MAX};
    struct round *round;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        round = start(2, 3, 0);
        lose(round, 2, bad[i]);
        assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
        assert_int_equal(round->loss.losses, 0);
    }
    for (uint64_t id = 1; id <= 2; id++) { /* a rank of another node; a lost rank */
        const struct ct_still still = {.generation = 1, .ranks = {2}};

        round = start(2, 3, 0);
        lose(round, 2, 1);
        say(round, id, CT_MESSAGE_STILL, &still, 10);
        assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
        assert_int_equal(round->refuse.code, CTRUN_E_PROTOCOL);
    }
}

/* ---- a node is lost, and the ranks of the others continue ---- */

enum {
    /* The lease, the time to kill, and wrong clocks, for a node that was last heard at 0. */
    DEAD_MS = 7350,
    SURVIVE_MS = 3000, /* --survive-timeout */
    LATER_MS = DEAD_MS + ROUND_NEWCOMER_MS
};

/* Members 1 to count, with one rank each. */
static struct round *start_to_survive(uint32_t min, uint32_t count)
{
    struct round *round = create(min, count, 0);

    for (uint32_t id = 1; id <= count; id++)
        add(round, id, 0);
    for (uint32_t id = 1; id <= count; id++)
        join_to_survive(round, id, SURVIVE_MS, 0);
    assert_int_equal(round->state, ROUND_RUNNING);
    return round;
}

static void assert_ended_by_node(const struct round *round)
{
    assert_int_equal(round->state, ROUND_STOPPING);
    assert_int_equal(round->stop.reason, CT_STOP_NODE_LOST);
    assert_int_equal(round->stop.cause.cause, CT_CAUSE_NODE_LOST);
    assert_string_equal(round->stop.cause.host, "n3");
    assert_int_equal(round->restart_count, 0);
}

ROUND_TEST(ranks_of_a_lost_node_are_lost_and_it_is_not_waited_for)
{
    struct round *round = start_to_survive(2, 3);

    stand_still(round, 3, 0, true); /* does not count any more */
    gone(round, 3, 100);
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 2);
    assert_int_equal(round->loss.rank, -1);
    assert_int_equal(round->loss.count, 1);
    assert_int_equal(round->loss.losses, 1);
    assert_string_equal(round->loss.text, "node n3 (1 rank) is lost: broken");
    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, true);
    assert_int_equal(round->world.epoch, 0);
}

/* A heartbeat, so that its lease does not end. */
static void beat(struct round *round, uint64_t id, uint64_t now_ms)
{
    const struct ct_heartbeat message = {.generation = round->generation};

    say(round, id, CT_MESSAGE_HEARTBEAT, &message, now_ms);
}

static struct round *lose_third(uint32_t min)
{
    struct round *round = start_to_survive(min, 3);

    beat(round, 1, 4000);
    beat(round, 2, 4000);
    gone(round, 3, 4000);
    return round;
}

ROUND_TEST(a_world_after_a_lost_node_is_told_once)
{
    struct round *round = lose_third(2);

    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, true);
    beat(round, 1, 7000);
    beat(round, 2, 7000);
    assert_int_equal(round_next_ms(round), DEAD_MS);
    tick(round, DEAD_MS);
    assert_world(round, 1, 3, 2);
    assert_int_equal(round->world.losses, 1);
    beat(round, 1, DEAD_MS + SURVIVE_MS);
    beat(round, 2, DEAD_MS + SURVIVE_MS);
    tick(round, DEAD_MS + SURVIVE_MS);
    assert_world(round, 1, 3, 0);
    add(round, 4, 10400); /* a place is free: all nodes start again */
    join(round, 4, 10400);
    assert_int_equal(round->state, ROUND_STOPPING);
    assert_int_equal(round->stop.reason, CT_STOP_MEMBERSHIP);
    assert_int_equal(round->stop.cause.cause, CT_CAUSE_NONE);
    assert_string_equal(facts_text(&round->stop.cause.facts), "19 n4\n");
}

ROUND_TEST(a_lost_node_ends_the_world_where_the_others_do_not_ask_in_time)
{
    struct round *round = lose_third(2);

    stand_still(round, 1, 0, true);
    for (uint64_t id = 1; id <= 2; id++)
        beat(round, id, DEAD_MS + SURVIVE_MS - 1);
    tick(round, DEAD_MS + SURVIVE_MS - 1);
    assert_world(round, 0, 0, 0);
    assert_int_equal(round_next_ms(round), DEAD_MS + SURVIVE_MS);
    tick(round, DEAD_MS + SURVIVE_MS);
    assert_ended_by_node(round);
}

ROUND_TEST(a_lost_node_is_the_cause_of_what_fails_then)
{
    const struct ct_succeeded succeeded = {.generation = 1};
    struct round *round = lose_third(2);

    report(round, 1, CT_CAUSE_EXIT, 4100);
    assert_ended_by_node(round);

    round = lose_third(2); /* the work of the lost node is not done */
    say(round, 1, CT_MESSAGE_SUCCEEDED, &succeeded, 4100);
    say(round, 2, CT_MESSAGE_SUCCEEDED, &succeeded, 4100);
    assert_ended_by_node(round);

    round = lose_third(2); /* a node without a worker that could ask reports this */
    lose(round, 2, -1);
    assert_ended_by_node(round);
}

ROUND_TEST(a_lost_node_ends_the_world_at_once_where_nobody_can_go_on)
{
    struct round *round;

    round = lose_third(3); /* too few nodes are left */
    assert_ended_by_node(round);

    round = start_to_survive(2, 3); /* there is a spare */
    add(round, 4, 0);
    join_to_survive(round, 4, SURVIVE_MS, 0);
    gone(round, 3, 10);
    assert_ended_by_node(round);
}

static void assert_store(const struct round *round, uint32_t node, const char *addr)
{
    assert_int_equal(round->world.store_node, node);
    assert_int_equal(round->world.store_port, 9);
    assert_string_equal(round->world.store_addr, addr);
    assert_int_equal(count_actions(round, ROUND_SEND_MEMBERS), 1);
}

/* The store moves to the first node that is left, each time. The loss of a node without the store
 * does not move it. */
ROUND_TEST(the_worker_store_moves_when_its_node_is_lost)
{
    struct round *round = start_to_survive(1, 4);
    const uint64_t later_ms = 2 * DEAD_MS;

    for (size_t i = 0; i < round->members.count; i++)
        snprintf(round->members.list[i]->join.local_addr, CT_HOST_MAX, "10.0.0.%zu",
                 i + 1);
    gone(round, 1, 0);
    assert_int_equal(round->loss.has_store, 1);
    for (uint64_t id = 2; id <= 4; id++)
        stand_still(round, id, 0, true);
    for (uint64_t id = 2; id <= 4; id++)
        beat(round, id, 4000);
    tick(round, DEAD_MS);
    assert_world(round, 1, 14, 3);
    assert_store(round, 1, "10.0.0.2");
    for (uint64_t id = 2; id <= 4; id++)
        beat(round, id, DEAD_MS);
    gone(round, 4, DEAD_MS);
    assert_int_equal(round->loss.has_store, 0);
    gone(round, 2, DEAD_MS);
    assert_int_equal(round->loss.has_store, 1);
    stand_still(round, 3, 1, true);
    beat(round, 3, later_ms - 1);
    tick(round, later_ms);
    assert_world(round, 2, 4, 1);
    assert_store(round, 2, "10.0.0.3");
}

/* The server knows which node has the store. A later loss reports the lost store, too, until it has
 * moved. */
ROUND_TEST(a_loss_says_that_the_worker_store_is_lost_until_it_has_moved)
{
    struct round *round = start_to_survive(1, 4);
    const struct ct_loss claim = {
        .generation = 1, .rank = 1, .has_store = 1, .text = "gone"};

    say(round, 2, CT_MESSAGE_LOSS, &claim, 0);
    assert_int_equal(round->loss.has_store, 0);
    gone(round, 1, 0);
    assert_int_equal(round->loss.has_store, 1);
    lose(round, 3, 2);
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 3);
    assert_int_equal(round->loss.has_store, 1);
    stand_still(round, 2, 0, false);
    stand_still(round, 3, 0, false);
    stand_still(round, 4, 0, true);
    for (uint64_t id = 2; id <= 4; id++)
        beat(round, id, 4000);
    tick(round, DEAD_MS);
    assert_int_equal(round->world.store_node, 3); /* it has a rank in the world */
    grow(round, 2, 1);
    lose(round, 2, 1);
    assert_int_equal(round->loss.has_store, 0);
}

/* The store is then in no agent. */
ROUND_TEST(a_store_of_the_server_does_not_move)
{
    struct round *round = start_to_survive(1, 2);

    round->settings.endpoint_port = 29400;
    gone(round, 1, 0);
    assert_int_equal(round->loss.has_store, 0);
    stand_still(round, 2, 0, true);
    beat(round, 2, 4000);
    tick(round, DEAD_MS);
    assert_world(round, 1, 2, 1);
    assert_int_equal(round->world.store_port, 0);
}

ROUND_TEST(nodes_that_are_lost_at_once_are_told_of_once)
{
    struct round *round = start_to_survive(2, 4);

    beat(round, 1, 4000);
    beat(round, 2, 4000);
    tick(round, 5000);
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 2);
    assert_int_equal(round->loss.count, 2);
    assert_int_equal(round->loss.losses, 2);
    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, true);
    beat(round, 1, 7000);
    beat(round, 2, 7000);
    tick(round, DEAD_MS);
    assert_world(round, 1, 3, 2);
}

/* Its agent has reported the loss of the only rank, but not that all its processes are dead. */
ROUND_TEST(
    leftovers_of_a_lost_node_are_waited_for_though_its_ranks_are_known_to_be_lost)
{
    struct round *round = start_to_survive(2, 3);

    beat(round, 1, 4000);
    beat(round, 2, 4000);
    lose(round, 3, 2);
    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, true);
    gone(round, 3, 4000);
    assert_world(round, 0, 0, 0);
    beat(round, 1, DEAD_MS);
    beat(round, 2, DEAD_MS);
    tick(round, DEAD_MS);
    /* Its LOSS at 10 was the last message from it. */
    assert_world(round, 0, 0, 0);
    tick(round, DEAD_MS + 10);
    assert_world(round, 1, 3, 2);

    round = start_to_survive(2, 3); /* one node never asks */
    lose(round, 3, 2);
    stand_still(round, 1, 0, true);
    gone(round, 3, 10);
    for (uint64_t id = 1; id <= 2; id++)
        beat(round, id, DEAD_MS + SURVIVE_MS);
    tick(round, DEAD_MS + SURVIVE_MS + 10);
    assert_ended_by_node(round);
}

/* ---- another node replaces a lost one ---- */

static void join_to_replace(struct round *round, uint64_t id, uint32_t slots,
                            uint64_t now_ms)
{
    const struct ct_join message = {.slots = slots,
                                    .node_rank_hint = -1,
                                    .store_port = (uint16_t)(100 + id),
                                    .survive_ms = SURVIVE_MS,
                                    .replaces = 1};

    say(round, id, CT_MESSAGE_JOIN, &message, now_ms);
}

/* One rank for each node. */
static struct round *start_to_replace(uint32_t min, uint32_t count)
{
    struct round *round = create(min, count, 0);

    for (uint32_t id = 1; id <= count; id++)
        add(round, id, 0);
    for (uint32_t id = 1; id <= count; id++)
        join_to_replace(round, id, 1, 0);
    assert_int_equal(round->state, ROUND_RUNNING);
    return round;
}

static void beat_all(struct round *round, uint64_t now_ms)
{
    for (size_t i = round->members.count; i-- > 0;)
        beat(round, round->members.list[i]->link.id, now_ms);
}

/* Of three members, `lost` is lost and the others continue; its place is free. */
static struct round *free_place(uint64_t lost)
{
    struct round *round = start_to_replace(2, 3);

    gone(round, lost, 0);
    for (uint64_t id = 1; id <= 3; id++)
        if (id != lost)
            stand_still(round, id, 0, true);
    beat_all(round, 4000);
    tick(round, DEAD_MS);
    assert_int_equal(round->world.epoch, 1);
    beat_all(round, DEAD_MS);
    return round;
}

ROUND_TEST(a_node_takes_the_place_of_a_lost_one_and_its_rank_is_taken_in)
{
    struct round *round = free_place(2);
    const struct ct_start *told;

    add(round, 4, DEAD_MS);
    join_to_replace(round, 4, 1, DEAD_MS);
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(count_actions(round, ROUND_SEND_START), 0);
    assert_int_equal(count_actions(round, ROUND_SEND_MEMBERS), 2);
    assert_int_equal(round_next_ms(round), LATER_MS);
    tick(round, LATER_MS);
    assert_int_equal(count_actions(round, ROUND_SEND_START), 1);
    assert_world(round, 1, 5, 1); /* the new node gets it, too */
    told = start_of(round, 4);
    assert_int_equal(told->generation, 1);
    assert_int_equal(told->is_new, 1);
    assert_int_equal(told->group_rank, 1);
    assert_int_equal(told->rank_base, 1);
    assert_int_equal(told->world_size, 3);
    assert_int_equal(told->master_port, 101);
    assert_int_equal(start_of(round, 3)->is_new, 0);
    grow(round, 4, 1);
    assert_int_equal(count_actions(round, ROUND_SEND_GROW), 3);
    for (uint64_t id = 1; id <= 3; id += 2)
        stand_still(round, id, 1, true);
    assert_world(round, 1, 5, 0);
    say(round, 4, CT_MESSAGE_STILL,
        &(struct ct_still){.generation = 1, .epoch = 1, .ranks = {2}}, DEAD_MS);
    assert_world(round, 2, 7, 3);
}

/* Until then a worker of the lost node may run with the same rank. */
ROUND_TEST(it_waits_until_what_was_there_is_dead)
{
    struct round *round = start_to_replace(2, 3);

    add(round, 4, 0);
    join_to_replace(round, 4, 1, 0); /* a spare does not end this world */
    gone(round, 3, 0);
    assert_int_equal(round->state, ROUND_RUNNING);
    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, true);
    beat_all(round, 4000);
    assert_int_equal(count_actions(round, ROUND_SEND_START), 0);
    beat_all(round, 7000);
    tick(round, DEAD_MS);
    assert_int_equal(count_actions(round, ROUND_SEND_START), 0);
    assert_int_equal(count_actions(round, ROUND_SEND_MEMBERS), 2);
    tick(round, LATER_MS);
    assert_int_equal(count_actions(round, ROUND_SEND_START), 1);
    assert_int_equal(start_of(round, 4)->group_rank, 2);
    assert_int_equal(start_of(round, 4)->rank_base, 2);
}

static void break_link(struct round *round, uint64_t id, uint64_t now_ms)
{
    member_find(&round->members, id)->link.key = id;
    gone(round, id, now_ms);
    assert_true(member_find(&round->members, id)->is_away);
}

static void resume(struct round *round, uint64_t id, uint64_t now_ms)
{
    const struct ct_resume body = {
        .key = id, .generation = 1, .state = CT_RESUME_RUNNING};
    const struct member_link link = {.id = id, .key = id};
    const struct round_command command = {
        .kind = ROUND_RESUME,
        .id = id,
        .link = &link,
        .message = &(struct ct_message){CT_MESSAGE_RESUME, .resume = &body}};

    assert_int_equal(round_step(round, &command, now_ms), 0);
}

/* That node would refuse the new node's workers. */
ROUND_TEST(nobody_comes_while_a_node_cannot_be_told_of_it)
{
    struct round *round = free_place(2);

    break_link(round, 1, DEAD_MS);
    add(round, 4, DEAD_MS);
    join_to_replace(round, 4, 1, DEAD_MS);
    assert_int_equal(count_actions(round, ROUND_SEND_MEMBERS), 0);
    resume(round, 1, DEAD_MS + 100);
    /* Its own list, and one for all. */
    assert_int_equal(count_actions(round, ROUND_SEND_MEMBERS), 3);
    break_link(round, 3, DEAD_MS + 200);
    tick(round, LATER_MS + 100);
    assert_int_equal(count_actions(round, ROUND_SEND_START), 0);
    resume(round, 3, LATER_MS + 200);
    assert_int_equal(count_actions(round, ROUND_SEND_START), 1);
}

/* After a long pause of the server's node: the agent that joins is the one that was away. */
ROUND_TEST(nobody_is_a_spare_while_a_node_of_the_world_is_away)
{
    struct round *round = start(2, 2, 1);

    break_link(round, 2, 100);
    add_on(round, 3, "n2", 100);
    join(round, 3, 100);
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 0);
    resume(round, 2, 200); /* it was another one */
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 1);
    assert_true(round->waiting.is_spare);
    break_link(round, 2, 300);
    resume(round, 2, 400); /* nothing is new */
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 0);
}

/* The store moved to this node while it was away. */
ROUND_TEST(who_may_use_the_worker_store_is_told_again_after_a_break)
{
    struct round *round = start_to_replace(2, 3);

    gone(round, 1, 0);
    stand_still(round, 2, 0, true);
    stand_still(round, 3, 0, true);
    beat_all(round, 7000);
    break_link(round, 2, DEAD_MS - 10);
    tick(round, DEAD_MS);
    assert_int_equal(round->world.store_node, 1);
    assert_int_equal(count_actions(round, ROUND_SEND_MEMBERS), 0);
    resume(round, 2, DEAD_MS + 10);
    assert_int_equal(count_actions(round, ROUND_SEND_MEMBERS), 1);
    assert_int_equal(count_actions(round, ROUND_SEND_WORLD), 1);
}

ROUND_TEST(it_is_told_where_the_worker_store_has_moved)
{
    struct round *round = free_place(1);

    add(round, 4, DEAD_MS);
    join_to_replace(round, 4, 1, DEAD_MS);
    tick(round, LATER_MS);
    assert_int_equal(start_of(round, 4)->group_rank, 0);
    assert_int_equal(start_of(round, 4)->master_port, 102);
    assert_string_equal(start_of(round, 4)->master_host, "n2");
    assert_string_equal(start_of(round, 4)->master_addr, round->world.store_addr);
    gone(round, 4, DEAD_MS); /* the store was never on it */
    assert_int_equal(round->world.store_node, 1);
    assert_int_equal(round->state, ROUND_RUNNING);
}

/* It is lost before it asks, then while the others wait for the next world: they do not wait for
 * it, and another node may replace it. */
ROUND_TEST(it_is_lost_before_the_others_take_it_in)
{
    struct round *round = free_place(3);
    const uint64_t again_ms = LATER_MS + DEAD_MS - ROUND_NEWCOMER_MS;

    add(round, 4, DEAD_MS);
    join_to_replace(round, 4, 1, DEAD_MS);
    tick(round, LATER_MS);
    gone(round, 4, LATER_MS);
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 0);
    assert_world(round, 1, 3, 0);
    add(round, 5, DEAD_MS);
    join_to_replace(round, 5, 1, DEAD_MS);
    assert_int_equal(count_actions(round, ROUND_SEND_START), 0);
    beat_all(round, DEAD_MS + 4000);
    assert_int_equal(round_next_ms(round), again_ms);
    beat_all(round, again_ms - 1);
    tick(round, again_ms);
    tick(round, again_ms + ROUND_NEWCOMER_MS);
    assert_int_equal(start_of(round, 5)->is_new, 1);
    grow(round, 5, 2);
    stand_still(round, 1, 1, true);
    stand_still(round, 2, 1, true);
    assert_world(round, 1, 3, 0);
    gone(round, 5, again_ms);
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 0);
    assert_world(round, 2, 3, 2);
    /* A member that resumes gets no GROW of it. */
    assert_int_equal(round->grow.generation, 0);
}

/* Node 4 has the place of node 2, and its rank is in no world yet. */
static struct round *start_newcomer(void)
{
    struct round *round = free_place(2);

    add(round, 4, DEAD_MS);
    join_to_replace(round, 4, 1, DEAD_MS);
    tick(round, LATER_MS);
    assert_int_equal(start_of(round, 4)->is_new, 1);
    return round;
}

static void succeed(struct round *round, uint64_t id)
{
    say(round, id, CT_MESSAGE_SUCCEEDED, &(struct ct_succeeded){.generation = 1},
        LATER_MS);
}

static void assert_succeeded(const struct round *round)
{
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_SUCCEEDED);
    assert_int_equal(count_actions(round, ROUND_SEND_VERDICT), round->members.count);
}

ROUND_TEST(the_run_does_not_wait_for_one_that_is_in_no_world)
{
    struct round *round;

    for (int asks = 0; asks <= 1; asks++) { /* with and without its question */
        round = start_newcomer();
        if (asks) {
            grow(round, 4, 1);
            say(round, 4, CT_MESSAGE_STILL,
                &(struct ct_still){.generation = 1, .epoch = 1, .ranks = {2}},
                LATER_MS);
        }
        succeed(round, 1);
        assert_int_equal(round->state, ROUND_RUNNING);
        succeed(round, 3);
        assert_succeeded(round);
    }

    round = start_newcomer(); /* it is lost at the end */
    succeed(round, 1);
    gone(round, 4, LATER_MS);
    assert_int_equal(round->state, ROUND_RUNNING);
    succeed(round, 3);
    assert_succeeded(round);

    round = start_newcomer(); /* it ends first: the others continue */
    succeed(round, 4);
    succeed(round, 1);
    assert_int_equal(round->state, ROUND_RUNNING);
    succeed(round, 3);
    assert_succeeded(round);
}

/* An agent reports the failure of the last rank instead. */
ROUND_TEST(the_last_node_does_not_succeed_without_a_rank)
{
    struct round *round = start_to_survive(1, 2);

    lose(round, 2, 1);
    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, false);
    assert_world(round, 1, 1, 2);
    succeed(round, 2);
    assert_int_equal(round->state, ROUND_RUNNING);
    lose(round, 1, 0);
    succeed(round, 1);
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(round->refuse.code, CTRUN_E_PROTOCOL);
    assert_int_equal(round->state, ROUND_STOPPING); /* the other one begins again */
}

/* Its LEAVE crosses the verdict. */
ROUND_TEST(one_that_is_in_no_world_may_leave_after_the_end)
{
    const struct ct_leave leave = {.reason = "asked to"};
    struct round *round = start_newcomer();

    succeed(round, 1);
    succeed(round, 3);
    assert_succeeded(round);
    say(round, 4, CT_MESSAGE_LEAVE, &leave, LATER_MS);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 0);
    stopped(round, 4, LATER_MS);
    gone(round, 4, LATER_MS);
    assert_null(member_find(&round->members, 4));
    assert_int_equal(round->state, ROUND_CLOSED);
}

/* It waits until the others end: they may take in a node, or be started again. */
ROUND_TEST(a_node_whose_ranks_are_all_lost_does_not_begin_the_end)
{
    struct round *round = start_to_survive(1, 3);

    lose(round, 3, 2);
    stand_still(round, 1, 0, true);
    stand_still(round, 2, 0, true);
    stand_still(round, 3, 0, false);
    assert_world(round, 1, 3, 3);
    succeed(round, 3);
    assert_false(round->is_finishing);
    succeed(round, 1);
    assert_true(round->is_finishing);
    assert_int_equal(round->state, ROUND_RUNNING);
    succeed(round, 2);
    assert_succeeded(round);
}

static void assert_goes_on_without_fourth(const struct round *round)
{
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->restart_count, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 0);
    assert_null(member_find(&round->members, 4));
}

ROUND_TEST(what_fails_on_one_that_is_in_no_world_ends_that_one_alone)
{
    const struct ct_leave leave = {.reason = "asked to"};
    struct round *round = start_newcomer();

    report(round, 4, CT_CAUSE_EXEC, LATER_MS);
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(round->refuse.code, CTRUN_E_CHANGED);
    assert_goes_on_without_fourth(round);

    round = start_newcomer();
    stopped(round, 4, LATER_MS);
    assert_int_equal(count_actions(round, ROUND_DROP), 1);
    assert_goes_on_without_fourth(round);

    round = start_newcomer();
    say(round, 4, CT_MESSAGE_LEAVE, &leave, LATER_MS);
    assert_int_equal(round->state, ROUND_RUNNING);
    stopped(round, 4, LATER_MS);
    assert_int_equal(count_actions(round, ROUND_DROP), 0);
    gone(round, 4, LATER_MS);
    assert_goes_on_without_fourth(round);

    round = start_newcomer(); /* the others wait for the next world until it leaves */
    grow(round, 4, 1);
    stand_still(round, 1, 1, true);
    stand_still(round, 3, 1, true);
    say(round, 4, CT_MESSAGE_LEAVE, &leave, LATER_MS);
    assert_world(round, 2, 5, 3);
    stand_still(round, 1, 2, true);
    say(round, 4, CT_MESSAGE_STILL,
        &(struct ct_still){.generation = 1, .epoch = 2, .ranks = {2}}, LATER_MS);
    stand_still(round, 3, 2, true);
    assert_world(round, 3, 5, 3);

    round = start_newcomer(); /* no node may take that place */
    report(round, 4, CT_CAUSE_UNKILLABLE, LATER_MS);
    assert_int_equal(round->state, ROUND_STOPPING);
}

ROUND_TEST(what_cannot_be_killed_there_ends_the_run_also_at_its_end)
{
    const struct ct_stopped body = {
        .generation = 1,
        .failure_count = 1,
        .failures = {{.generation = 1, .cause = CT_CAUSE_UNKILLABLE, .rank = 1}}};
    struct round *round = start_newcomer();

    say(round, 4, CT_MESSAGE_STOPPED, &body, LATER_MS);
    assert_int_equal(round->state, ROUND_STOPPING);
    stopped(round, 1, LATER_MS);
    stopped(round, 3, LATER_MS);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_int_equal(round->verdict.exit_code, 76);
}

/* A new rank has no state of the others' work. */
ROUND_TEST(one_that_is_in_no_world_cannot_go_on_for_the_others)
{
    struct round *round = start_newcomer();

    succeed(round, 1);
    gone(round, 3, LATER_MS);
    assert_int_equal(round->state, ROUND_STOPPING);
    assert_int_equal(round->stop.reason, CT_STOP_NODE_LOST);

    round = start_newcomer(); /* all others have lost their ranks, and one has ended */
    succeed(round, 1);
    grow(round, 4, 1);
    lose(round, 3, 2);
    stand_still(round, 3, 1, false);
    say(round, 4, CT_MESSAGE_STILL,
        &(struct ct_still){.generation = 1, .epoch = 1, .ranks = {2}}, LATER_MS);
    assert_world(round, 2, 2, 2);
    succeed(round, 4);
    assert_int_equal(round->state, ROUND_RUNNING); /* node 3 has not ended */
}

/* It imports for a while, or its agent sends nothing: the others do not wait for it, and take it in
 * later. */
ROUND_TEST(one_that_is_in_no_world_and_does_not_ask_holds_up_no_decision)
{
    struct round *round = start_newcomer();

    lose(round, 3, 2);
    stand_still(round, 1, 1, true);
    stand_still(round, 3, 1, false);
    assert_world(round, 2, 1, 3);
    grow(round, 4, 1);
    stand_still(round, 1, 2, true);
    stand_still(round, 3, 2, false);
    assert_world(round, 2, 1, 0); /* it has asked, and its STILL has not arrived */
    say(round, 4, CT_MESSAGE_STILL,
        &(struct ct_still){.generation = 1, .epoch = 2, .ranks = {2}}, LATER_MS);
    assert_world(round, 3, 3, 3);

    /* It replaces a node that had asked and was lost. */
    round = start_newcomer();
    grow(round, 4, 1);
    gone(round, 4, LATER_MS);
    assert_false(~round->lost[0] & 2);
}

/* A restarted server does not know which nodes were in the world before. */
ROUND_TEST(after_a_restart_new_ranks_do_not_go_on_for_a_lost_node_either)
{
    struct round *round = start_newcomer();

    round->is_carried_on = false; /* as after a restore */
    report(round, 4, CT_CAUSE_EXEC, LATER_MS);
    assert_int_equal(round->state, ROUND_STOPPING); /* all start again: safe */

    for (int asks = 0; asks <= 1; asks++) {
        round = start_newcomer();
        round->is_carried_on = false;
        succeed(round, 1);
        gone(round, 3, LATER_MS);
        assert_int_equal(round->state, ROUND_RUNNING);
        if (asks)
            grow(round, 4, 1);
        say(round, 4, CT_MESSAGE_STILL,
            &(struct ct_still){.generation = 1, .epoch = 1, .ranks = {asks ? 2 : 0}},
            LATER_MS);
        beat_all(round, LATER_MS + DEAD_MS - 1000);
        tick(round, LATER_MS + DEAD_MS);
        assert_int_equal(count_actions(round, ROUND_SEND_WORLD), 0);
        assert_int_equal(round->state, ROUND_STOPPING);
        assert_int_equal(round->stop.reason, CT_STOP_NODE_LOST);
    }
}

/* All workers of node 1, which has the store, are lost first: the others continue, and still need
 * the store. */
ROUND_TEST(the_worker_store_moves_from_a_node_without_ranks)
{
    struct round *round = start_to_replace(2, 3);

    lose(round, 1, 0);
    for (uint64_t id = 1; id <= 3; id++)
        stand_still(round, id, 0, id != 1);
    assert_world(round, 1, 6, 3);
    assert_int_equal(round->world.store_port, 0);
    gone(round, 1, 10);
    assert_int_equal(count_actions(round, ROUND_SEND_LOSS), 2);
    assert_int_equal(round->loss.has_store, 1);
    assert_int_equal(round->loss.losses, 2);
    assert_int_equal(round->loss.count, 0);
    add(round, 4, 10);
    join_to_replace(round, 4, 1, 10); /* it would get that place */
    beat_all(round, DEAD_MS);
    tick(round, LATER_MS + 10);
    assert_int_equal(count_actions(round, ROUND_SEND_START), 0);
    stand_still(round, 2, 1, true);
    stand_still(round, 3, 1, true);
    tick(round, LATER_MS + 10);
    assert_int_equal(round->world.epoch, 2);
    assert_int_equal(round->world.ranks[0], 6);
    assert_int_equal(round->world.store_node, 1);
    assert_int_equal(round->world.store_port, 102);
    tick(round, LATER_MS + 10 + ROUND_NEWCOMER_MS);
    assert_int_equal(start_of(round, 4)->group_rank, 0);
    assert_int_equal(start_of(round, 4)->master_port, 102);
    /* The store moves to a node that has a rank in the world, not to node 4. */
    gone(round, 2, LATER_MS + 1000);
    stand_still(round, 3, 2, true);
    say(round, 4, CT_MESSAGE_STILL, &(struct ct_still){.generation = 1, .epoch = 2},
        LATER_MS + 1000);
    beat_all(round, LATER_MS + 5000);
    tick(round, LATER_MS + 1000 + DEAD_MS);
    assert_int_equal(round->world.epoch, 3);
    assert_int_equal(round->world.store_node, 2);

    round = start_to_replace(2, 3); /* nobody asks for another world */
    lose(round, 1, 0);
    for (uint64_t id = 1; id <= 3; id++)
        stand_still(round, id, 0, id != 1);
    gone(round, 1, 10);
    beat_all(round, DEAD_MS + SURVIVE_MS);
    tick(round, DEAD_MS + SURVIVE_MS + 10);
    assert_int_equal(round->state, ROUND_STOPPING);
    assert_int_equal(round->stop.reason, CT_STOP_NODE_LOST);
}

/* One rank of the lost node is in the world, and another one waits to be taken in. */
ROUND_TEST(a_node_is_lost_while_a_rank_of_it_waits)
{
    struct round *round = create(1, 2, 0);

    for (uint64_t id = 1; id <= 2; id++)
        add(round, id, 0);
    for (uint64_t id = 1; id <= 2; id++)
        join_to_replace(round, id, 2, 0);
    lose(round, 2, 3);
    say(round, 1, CT_MESSAGE_STILL, &(struct ct_still){.generation = 1, .ranks = {3}},
        10);
    say(round, 2, CT_MESSAGE_STILL, &(struct ct_still){.generation = 1, .ranks = {4}},
        10);
    assert_world(round, 1, 7, 2);
    grow(round, 2, 3);
    say(round, 1, CT_MESSAGE_STILL,
        &(struct ct_still){.generation = 1, .epoch = 1, .ranks = {3}}, 10);
    gone(round, 2, 10);
    assert_int_equal(round->loss.count, 1);
    assert_int_equal(round->loss.losses, 2);
    assert_int_equal(round->grow.generation, 0);
    assert_world(round, 1, 7, 0); /* the rank that was in the world may live */
    beat(round, 1, 4000);
    tick(round, DEAD_MS + 10);
    assert_world(round, 2, 3, 1);
}

/* It becomes a spare if the run is full; if more nodes are allowed, all nodes start again with
 * it. */
ROUND_TEST(another_one_that_has_waited_for_the_place_does_not_wait_on)
{
    for (uint32_t max = 3; max <= 4; max++) {
        struct round *round = start_to_replace(2, 3);

        for (uint64_t id = 4; id <= 5; id++) {
            add(round, id, 0);
            join_to_replace(round, id, 1, 0);
        }
        gone(round, 3, 0);
        stand_still(round, 1, 0, true);
        stand_still(round, 2, 0, true);
        beat_all(round, 4000);
        round->settings.max_nodes = max;
        beat_all(round, 7000);
        tick(round, DEAD_MS);
        tick(round, LATER_MS);
        assert_int_equal(count_actions(round, ROUND_SEND_START), 1);
        assert_int_equal(round->state, max == 3 ? ROUND_RUNNING : ROUND_STOPPING);
        assert_int_equal(count_actions(round, ROUND_SEND_WAITING), max == 3);
    }
}

ROUND_TEST(a_place_that_does_not_fit_is_no_place)
{
    struct round *round = free_place(3);

    add(round, 4, DEAD_MS);
    join_to_replace(round, 4, 2, DEAD_MS);
    assert_int_equal(round->state, ROUND_STOPPING); /* all nodes start again, with it */
    assert_int_equal(round->stop.reason, CT_STOP_MEMBERSHIP);

    round = free_place(3); /* a node without --survive-replace */
    add(round, 4, DEAD_MS);
    join_to_survive(round, 4, SURVIVE_MS, DEAD_MS);
    assert_int_equal(round->state, ROUND_STOPPING);
}

static void add_at(struct round *round, uint64_t id, const char *addr, uint64_t now_ms)
{
    struct member_link link = {.id = id, .reached_at = "10.0.0.9"};

    snprintf(link.host, sizeof link.host, "n%d", (int)id);
    (void)ct_copy(link.seen_as, sizeof link.seen_as, addr);
    assert_int_equal(
        round_step(round, &(struct round_command){.kind = ROUND_ADD, .link = &link},
                   now_ms),
        0);
}

/* Nodes of this host use 127.0.0.1, which is another host for node 4. */
ROUND_TEST(nobody_elsewhere_gets_a_place_on_the_host_where_all_others_are)
{
    struct round *round = free_place(3);

    assert_string_equal(start_of(round, 1)->master_addr, "127.0.0.1");
    add_at(round, 4, "10.0.0.4", DEAD_MS);
    join_to_replace(round, 4, 1, DEAD_MS);
    assert_int_equal(round->state, ROUND_STOPPING); /* all nodes start again, with it */
    assert_int_equal(round->stop.reason, CT_STOP_MEMBERSHIP);

    round = start_to_replace(2, 3);
    add_at(round, 4, "10.0.0.4", 0);
    join_to_replace(round, 4, 1, 0);
    assert_int_equal(round->state, ROUND_RUNNING);
    gone(round, 3, 0);
    assert_int_equal(round->state, ROUND_STOPPING);
}

/* The store moves to the only node that is left, whose address is `last`. */
static struct round *leave_one(const char *last)
{
    struct round *round = create(1, 2, 0);

    add_at(round, 1, "10.0.0.1", 0);
    add_at(round, 2, last, 0);
    join_to_replace(round, 1, 1, 0);
    join_to_replace(round, 2, 1, 0);
    assert_string_equal(start_of(round, 2)->master_addr, "10.0.0.1");
    gone(round, 1, 0);
    add_at(round, 3, "10.0.0.3", 0);
    join_to_replace(round, 3, 1, 0);
    stand_still(round, 2, 0, true);
    beat_all(round, 4000);
    assert_int_equal(round->state, ROUND_RUNNING);
    tick(round, DEAD_MS);
    assert_int_equal(round->world.epoch, 1);
    return round;
}

ROUND_TEST(the_last_node_keeps_the_store_where_others_find_it)
{
    struct round *round = leave_one("10.0.0.2");

    assert_string_equal(round->world.store_addr, "10.0.0.2");
    beat_all(round, DEAD_MS);
    tick(round, LATER_MS);
    assert_string_equal(start_of(round, 3)->master_addr, "10.0.0.2");
    assert_int_equal(round->state, ROUND_RUNNING);

    /* Its only known address is on the server's host. */
    round = leave_one("127.0.0.1");
    assert_int_equal(round->state, ROUND_STOPPING);
    assert_int_equal(round->stop.reason, CT_STOP_MEMBERSHIP);
}

/* ---- reload ---- */

static void say_reload(struct round *round, uint64_t id, enum ct_reload_step step,
                       uint64_t number, uint64_t program, const char *text)
{
    struct ct_reload message = {
        .number = number, .step = (uint8_t)step, .ticket = 4, .program = program};

    (void)ct_copy(message.text, sizeof message.text, text);
    (void)ct_copy(message.command, sizeof message.command, "b.py --lr 2");
    say(round, id, CT_MESSAGE_RELOAD, &message, 10);
}

static void answer_reload(struct round *round, uint64_t id, uint64_t program)
{
    say_reload(round, id, CT_RELOAD_ANSWER, round->offer.number, program, "");
}

/* A world of three nodes; the second asks for a reload. */
static struct round *start_with_offer(void)
{
    struct round *round = start(2, 3, 1);

    say_reload(round, 2, CT_RELOAD_ASK, 0, 0, "");
    assert_int_equal(count_actions(round, ROUND_SEND_OFFER), 3);
    assert_int_equal(round->offer.step, CT_RELOAD_OFFER);
    assert_string_equal(round->offer.by, "n2");
    return round;
}

static void assert_refused(struct round *round, const char *text)
{
    assert_int_equal(count_actions(round, ROUND_SEND_RELOADED), 1);
    assert_int_equal(count_actions(round, ROUND_SEND_RELOAD), 0);
    assert_int_equal(round->reloaded.ticket, 4);
    assert_string_equal(round->reloaded.text, text);
    assert_int_equal(round->reload.number, 0);
    assert_int_equal(round->offer.number, 0);
    assert_int_equal(round->state, ROUND_RUNNING);
}

ROUND_TEST(a_reload_is_taken_once_every_node_can)
{
    struct round *round = start_with_offer();

    answer_reload(round, 1, 7);
    answer_reload(round, 1, 7); /* counts once */
    answer_reload(round, 2, 7);
    assert_int_equal(count_actions(round, ROUND_SEND_RELOAD), 0);
    answer_reload(round, 3, 7);
    assert_int_equal(count_actions(round, ROUND_SEND_RELOAD), 3);
    assert_int_equal(count_actions(round, ROUND_SEND_RELOADED), 1);
    assert_string_equal(round->reloaded.text, "");
    assert_int_equal(round->reloaded.number, 1);
    assert_int_equal(round->reload.step, CT_RELOAD_TAKE);
    assert_int_equal(round->reload.program, 7);
    assert_string_equal(round->reload.command, "b.py --lr 2");
    assert_int_equal(round->state, ROUND_RUNNING); /* it is for the next round */
}

/* All members of the round take part. */
static void reload_all(struct round *round)
{
    const uint64_t number = round->reload.number + 1;

    say_reload(round, 1, CT_RELOAD_ASK, 0, 0, "");
    for (size_t i = 0; i < round->members.count; i++)
        answer_reload(round, round->members.list[i]->link.id, 7);
    assert_int_equal(round->reload.number, number);
}

/* It would run the new program in the place of a rank among others that run the old one. */
ROUND_TEST(no_newcomer_gets_a_place_in_a_world_from_before_the_reload)
{
    struct round *round;

    for (int is_announced = 0; is_announced < 2; is_announced++) {
        round = free_place(2);
        if (!is_announced)
            reload_all(round);
        add(round, 4, DEAD_MS);
        join_to_replace(round, 4, 1, DEAD_MS);
        assert_int_equal(member_find(&round->members, 4)->is_announced, is_announced);
        if (is_announced)
            reload_all(round);
        beat_all(round, DEAD_MS);
        tick(round, LATER_MS);
        assert_int_equal(round->state, ROUND_STOPPING);
        assert_int_equal(round->stop.reason, CT_STOP_MEMBERSHIP);
        for (uint64_t id = 1; id <= 3; id += 2)
            stopped(round, id, LATER_MS);
        for (uint64_t id = 1; id <= 3; id += 2)
            join_to_replace(round, id, 1, LATER_MS);
        assert_int_equal(round->generation, 2);
        assert_int_equal(round->world_count, 3);
    }
    /* The new world runs the new program. */
    gone(round, 4, LATER_MS);
    assert_int_equal(round->state, ROUND_RUNNING);
    beat_all(round, LATER_MS + 4000);
    tick(round, LATER_MS + DEAD_MS);
    add(round, 5, LATER_MS + DEAD_MS);
    join_to_replace(round, 5, 1, LATER_MS + DEAD_MS);
    assert_int_equal(round->state, ROUND_RUNNING);
}

ROUND_TEST(a_reload_that_a_node_cannot_run_changes_nothing)
{
    struct round *round = start_with_offer();

    answer_reload(round, 1, 7);
    say_reload(round, 3, CT_RELOAD_ANSWER, 1, 0, "b.py: no such file");
    assert_refused(round, "n3: b.py: no such file");
}

ROUND_TEST(a_reload_of_unlike_files_is_refused)
{
    struct round *round = start_with_offer();

    answer_reload(round, 1, 7);
    answer_reload(round, 2, 0); /* not known: not compared */
    answer_reload(round, 3, 8);
    assert_refused(round, "the file of that name on n3 differs from the one on the "
                          "nodes that answered before");
}

ROUND_TEST(a_reload_does_not_wait_for_ever)
{
    struct round *round = start_with_offer();

    answer_reload(round, 1, 7);
    assert_true(round_next_ms(round) <= 10 + ROUND_OFFER_MS);
    tick(round, 9 + ROUND_OFFER_MS);
    assert_int_equal(count_actions(round, ROUND_SEND_RELOADED), 0);
    tick(round, 10 + ROUND_OFFER_MS);
    assert_refused(round, "n2 did not answer within 4 s");
}

ROUND_TEST(a_reload_ends_with_a_node_that_leaves)
{
    struct round *round = start_with_offer();
    const struct ct_leave leave = {.reason = "bye"};

    answer_reload(round, 1, 7);
    say(round, 3, CT_MESSAGE_LEAVE, &leave, 11);
    assert_int_equal(count_actions(round, ROUND_SEND_RELOADED), 1);
    assert_string_equal(round->reloaded.text, "n3 leaves the run");
    answer_reload(round, 2, 7); /* too late */
    assert_int_equal(count_actions(round, ROUND_SEND_RELOAD), 0);
}

ROUND_TEST(one_reload_at_a_time)
{
    struct round *round = start_with_offer();

    say_reload(round, 1, CT_RELOAD_ASK, 0, 0, "");
    assert_string_equal(round->reloaded.text,
                        "another reload is in progress: try again in some seconds");
    assert_int_equal(round->offer.number, 1); /* the first reload continues */
    for (uint64_t id = 1; id <= 3; id++)
        answer_reload(round, id, 0);
    assert_int_equal(round->reload.number, 1);
}

ROUND_TEST(who_comes_later_gets_the_reload_before_its_start)
{
    struct round *round = start(1, 2, 1);
    size_t told = 0, begun = 0;

    gone(round, 2, 5);
    stopped(round, 1, 6);
    join(round, 1, 6);
    say_reload(round, 1, CT_RELOAD_ASK, 0, 0, "");
    answer_reload(round, 1, 7);
    assert_int_equal(round->reload.number, 1);
    add(round, 3, 20);
    join(round, 3, 20);
    for (size_t i = 0; i < round->action_count; i++) {
        told += round->actions[i].kind == ROUND_SEND_RELOAD &&
                round->actions[i].id == 3;
        begun += round->actions[i].kind == ROUND_SEND_START && !told;
    }
    assert_int_equal(told, 1);
    assert_int_equal(begun, 0);
    join(round, 1, 21);
    assert_int_equal(count_actions(round, ROUND_SEND_RELOAD), 0); /* it has it */
}

ROUND_TEST(a_server_that_has_forgotten_the_reload_learns_it)
{
    struct round *round = start(2, 2, 1);

    say_reload(round, 1, CT_RELOAD_TAKE, 5, 7, "");
    assert_int_equal(round->reload.number, 5);
    assert_int_equal(count_actions(round, ROUND_SEND_RELOAD), 1); /* to the other */
    say_reload(round, 2, CT_RELOAD_TAKE, 5, 7, "");
    say_reload(round, 2, CT_RELOAD_TAKE, 4, 7, "");
    assert_int_equal(count_actions(round, ROUND_SEND_RELOAD), 0);
    assert_int_equal(round->reload.number, 5);
}

static void ask_restart(struct round *round, uint64_t id, uint64_t now_ms)
{
    const struct ct_restart message = {.reason = "new data", .ticket = 4};

    say(round, id, CT_MESSAGE_RESTART, &message, now_ms);
    assert_int_equal(count_actions(round, ROUND_SEND_RESTART), 1);
    assert_int_equal(round->restart.ticket, 4);
    assert_true(round->restart.is_answer);
}

ROUND_TEST(a_restart_that_is_asked_for_stops_all_and_costs_none)
{
    struct round *round = start(2, 2, 1);

    ask_restart(round, 2, 10);
    assert_int_equal(round->restart.generation, 1);
    assert_int_equal(round->state, ROUND_STOPPING);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 2);
    assert_int_equal(round->stop.reason, CT_STOP_ASKED);
    assert_int_equal(round->stop.restart_count, 0);
    assert_int_equal(round->stop.is_final, 0);
    assert_int_equal(round->stop.cause.cause, CT_CAUSE_NONE);
    assert_string_equal(round->stop.cause.host, "n2");
    assert_string_equal(round->stop.cause.text, "new data");
    report(round, 1, CT_CAUSE_EXIT, 11); /* it fails because it was stopped */
    for (uint64_t id = 1; id <= 2; id++) {
        stopped(round, id, 12);
        join(round, id, 12);
    }
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->generation, 2);
    assert_int_equal(round->restart_count, 0);
}

static void refused(struct round *round, uint64_t id, const char *words)
{
    const enum round_state before = round->state;

    ask_restart(round, id, 20);
    assert_int_equal(round->restart.generation, 0);
    assert_non_null(strstr(round->restart.refusal, words));
    assert_int_equal(round->state, before);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 0);
}

ROUND_TEST(a_restart_is_refused_when_nothing_runs_or_the_run_ends)
{
    struct round *round = create(2, 2, 1);
    struct ct_succeeded message = {0};

    add(round, 1, 0);
    join(round, 1, 0);
    refused(round, 1, "waits for nodes");

    round = start(2, 2, 1);
    ask_restart(round, 1, 10);
    refused(round, 2, "being stopped already");

    round = start(2, 2, 1);
    message.generation = 1;
    say(round, 1, CT_MESSAGE_SUCCEEDED, &message, 10);
    refused(round, 2, "have succeeded");

    round = start(1, 1, 0);
    report(round, 1, CT_CAUSE_EXIT, 10); /* no restart is left */
    refused(round, 1, "the run is ending");
    stopped(round, 1, 11);
    assert_int_equal(round->state, ROUND_CLOSED);
    refused(round, 1, "the run is ending");
}

ROUND_TEST(a_node_that_stopped_by_itself_brings_a_new_round)
{
    struct round *round = start(2, 2, 0);

    stopped(round, 1, 10);
    assert_int_equal(round->state, ROUND_STOPPING);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 2); /* itself, too */
    stopped(round, 2, 20);
    assert_int_equal(round->state, ROUND_FORMING);
    join(round, 1, 30);
    join(round, 2, 30);
    assert_int_equal(round->generation, 2);
}

ROUND_TEST(a_member_that_never_says_stopped_does_not_hold_the_others_for_ever)
{
    struct round *round = start(1, 2, 1);

    report(round, 1, CT_CAUSE_EXIT, 0);
    stopped(round, 1, 0);
    join(round, 1, 0);
    for (uint64_t now_ms = 1000; now_ms < 70000; now_ms += 1000) {
        const struct ct_heartbeat beat = {0};

        say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
        say(round, 2, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
        tick(round, now_ms);
    }
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->world_count, 1);
}

/* It was started as the others, with --nnodes=1:3. */
static void add_typed(struct round *round, uint64_t id)
{
    const struct member_link link = {
        .id = id, .key = id, .host = "n", .min_nodes = 1, .max_nodes = 3};

    assert_int_equal(
        round_step(round, &(struct round_command){.kind = ROUND_ADD, .link = &link}, 0),
        0);
}

ROUND_TEST(a_member_that_comes_or_comes_back_after_a_resize_gets_the_limits)
{
    const struct ct_resize resize = {.min_nodes = 2, .max_nodes = 3};
    const struct ct_resume back = {.key = 1, .state = CT_RESUME_JOINING};
    const struct ct_message message = {CT_MESSAGE_RESUME, .resume = &back};
    const struct member_link link = {
        .id = 9, .host = "n", .min_nodes = 1, .max_nodes = 3};
    const struct round_command resume = {
        .kind = ROUND_RESUME, .id = 1, .link = &link, .message = &message};
    struct round *round = create(1, 3, 0);

    add_typed(round, 1);
    join(round, 1, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_RESIZE), 0);
    say(round, 1, CT_MESSAGE_RESIZE, &resize, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_RESIZE), 1);
    add_typed(round, 2);
    join(round, 2, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_RESIZE), 1);
    assert_int_equal(round->resize.min_nodes, 2);
    assert_string_equal(round->resize.by, "n");
    assert_int_equal(round_step(round, &resume, 0), 0);
    assert_int_equal(count_actions(round, ROUND_SEND_RESIZE), 1);
}

ROUND_TEST(limits_that_were_restored_are_sent_to_who_typed_others)
{
    struct round *round = create(2, 3, 0); /* an earlier server was asked for 2 */

    add_typed(round, 1);
    join(round, 1, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_RESIZE), 1);
    assert_int_equal(round->resize.min_nodes, 2);
    assert_int_equal(round->resize.max_nodes, 3);
    assert_string_equal(round->resize.by, "");
}

ROUND_TEST(who_is_absent_is_a_table)
{
    static const char *const expected[] = {"n1", "n2.cluster", "n3", "n4"};
    const struct round_settings settings = {.min_nodes = 4,
                                            .max_nodes = 4,
                                            .join_timeout_ms = 60000,
                                            .lost_after_ms = 5000,
                                            .expected = expected,
                                            .expected_count = 4};
    const struct ct_heartbeat beat = {0};
    struct round *round = make(&settings);

    add(round, 1, 1000);
    join(round, 1, 1000);
    add(round, 2, 1000);
    join(round, 2, 1000);
    gone(round, 2, 3000);
    round_note_refused(round, "10.0.0.9\n(calls itself n3)", "10.0.0.9", CTRUN_E_AUTH,
                       5000);
    tick(round, 5000);
    assert_string_equal(round->waiting.missing,
                        "n2, n3, n4 (never connected), 10.0.0.9?(calls itself n3) "
                        "(refused with E_AUTH: its user, token or proof was refused)");
    for (uint64_t now_ms = 5000; now_ms < 61000; now_ms += 1000)
        say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
    tick(round, 61000);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_string_equal(round->verdict.failures[0].text,
                        "1 of 4 nodes joined in 60.0 s");
    assert_string_equal(
        facts_text(&round->verdict.failures[0].facts),
        "19 n1\n"
        "20 n2: last contact 60.0 s ago: broken\n"
        "20 n3: never connected\n"
        "20 n4: never connected\n"
        "20 10.0.0.9?(calls itself n3): last contact 56.0 s ago: refused with E_AUTH: "
        "its user, token or proof was refused\n");
}

ROUND_TEST(clients_that_have_proven_nothing_take_no_row_of_a_node)
{
    static const char *const expected[] = {"n1", "n2", "n3"};
    const struct round_settings settings = {.min_nodes = 3,
                                            .max_nodes = 3,
                                            .join_timeout_ms = 60000,
                                            .lost_after_ms = 5000,
                                            .expected = expected,
                                            .expected_count = 3};
    struct round *round = make(&settings);
    char name[64], address[16];

    add(round, 1, 0);
    join(round, 1, 0);
    for (int i = 0; i < 100; i++) { /* one address: the latest name counts */
        snprintf(name, sizeof name, "10.0.0.9 (calls itself n%d)", i);
        round_note_refused(round, name, "10.0.0.9", CTRUN_E_AUTH, 0);
    }
    assert_int_equal(round->contacts.count, 1);
    assert_string_equal(round->contacts.list[0].host, "10.0.0.9 (calls itself n99)");
    for (int i = 0; i < 20; i++) {
        snprintf(address, sizeof address, "10.0.1.%d", i);
        round_note_refused(round, address, address, CTRUN_E_AUTH, 0);
    }
    round_note_refused(round, "n2", NULL, CTRUN_E_FINGERPRINT,
                       0); /* no room but theirs */
    assert_int_equal(round->contacts.count, CONTACTS_MAX);
    assert_int_equal(round->contacts.more, 6);
    for (uint64_t now_ms = 0; now_ms < 60000; now_ms += 1000)
        say(round, 1, CT_MESSAGE_HEARTBEAT, &(struct ct_heartbeat){0}, now_ms);
    tick(round, 60000);
    assert_true(ct_starts_with(
        ct_facts_find(&round->verdict.failures[0].facts, CT_FACT_MISSING), "n2: last"));
    assert_non_null(strstr(facts_text(&round->verdict.failures[0].facts),
                           "20 n3: never connected\n20 10.0."));
}

ROUND_TEST(where_each_task_is_a_member_the_absent_ones_are_counted_by_host)
{
    static const char *const expected[] = {"n1", "n2", "n3", "n4.cluster"};
    static const int tasks[] = {2, 2, 2, 3};
    const struct round_settings settings = {.min_nodes = 9,
                                            .max_nodes = 9,
                                            .join_timeout_ms = 60000,
                                            .lost_after_ms = 5000,
                                            .expected = expected,
                                            .expected_tasks = tasks,
                                            .expected_count = 4};
    const struct ct_heartbeat beat = {0};
    struct round *round = make(&settings);

    for (uint64_t id = 1; id <= 5; id++) {
        add_on(round, id, id <= 2 ? "n1" : id == 3 ? "n2" : "n4", 0);
        join(round, id, 0);
    }
    tick(round, 4000);
    assert_string_equal(round->waiting.missing, "n2 (1 of 2 tasks joined), n4.cluster "
                                                "(2 of 3 tasks joined), n3 (never "
                                                "connected)");
    for (uint64_t now_ms = 4000; now_ms < 61000; now_ms += 1000)
        for (uint64_t id = 1; id <= 5; id++)
            say(round, id, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
    tick(round, 61000);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_string_equal(round->verdict.failures[0].text,
                        "5 of 9 tasks joined in 60.0 s");
    assert_string_equal(facts_text(&round->verdict.failures[0].facts),
                        "19 n1, n2, n4\n"
                        "20 n2: 1 of 2 tasks joined\n"
                        "20 n3: never connected\n"
                        "20 n4.cluster: 2 of 3 tasks joined\n");
}

ROUND_TEST(names_that_no_host_has_are_not_said_to_be_absent)
{
    static const char *const expected[] = {"ip-1", "ip-2"};
    const struct round_settings settings = {.min_nodes = 2,
                                            .max_nodes = 2,
                                            .join_timeout_ms = 1000,
                                            .lost_after_ms = 5000,
                                            .expected = expected,
                                            .expected_count = 2};
    struct round *round = make(&settings);

    add(round, 1, 0);
    join(round, 1, 0);
    tick(round, 500);
    assert_string_equal(round->waiting.missing, "");
    tick(round, 1000);
    assert_string_equal(
        ct_facts_find(&round->verdict.failures[0].facts, CT_FACT_MISSING),
        "1 node: never connected (their names are not known here)");
}

ROUND_TEST(absent_tasks_of_hosts_without_names_are_counted_as_tasks)
{
    static const int tasks[] = {2, 2};
    const struct round_settings settings = {.min_nodes = 4,
                                            .max_nodes = 4,
                                            .join_timeout_ms = 1000,
                                            .lost_after_ms = 5000,
                                            .expected_tasks = tasks};
    struct round *round = make(&settings);

    add(round, 1, 0);
    join(round, 1, 0);
    tick(round, 1000);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_string_equal(
        ct_facts_find(&round->verdict.failures[0].facts, CT_FACT_MISSING),
        "3 tasks: never connected (their names are not known here)");
}

ROUND_TEST(the_last_contact_of_a_lost_node_is_its_last_message)
{
    const struct ct_heartbeat beat = {0};
    struct round *round = create(2, 2, 0);

    for (uint64_t id = 1; id <= 2; id++) {
        add(round, id, 0);
        join(round, id, 0);
    }
    say(round, 2, CT_MESSAGE_HEARTBEAT, &beat, 1000);
    for (uint64_t now_ms = 1000; now_ms < 67000; now_ms += 1000) {
        say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
        tick(round, now_ms);
        if (round->state == ROUND_STOPPING) {
            stopped(round, 1, now_ms);
            join(round, 1, now_ms);
        }
    }
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_non_null(strstr(facts_text(&round->verdict.failures[1].facts),
                           "n2: last contact 65.0 s ago: nothing received for 5.0 s"));
}

ROUND_TEST(a_node_that_has_left_is_absent_by_name_and_reason)
{
    const struct ct_leave leave = {.reason = "SIGTERM from pid 7"};
    const struct ct_heartbeat beat = {0};
    struct round *round = create(2, 2, 0);

    for (uint64_t id = 1; id <= 2; id++) {
        add(round, id, 0);
        join(round, id, 0);
    }
    say(round, 2, CT_MESSAGE_LEAVE, &leave, 1000);
    stopped(round, 2, 1000);
    stopped(round, 1, 1000);
    join(round, 1, 1000);
    gone(round, 2, 1000);
    tick(round, 1000);
    assert_string_equal(round->waiting.missing, "n2 (it has left: SIGTERM from pid 7)");
    for (uint64_t now_ms = 1000; now_ms < 61000; now_ms += 1000)
        say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
    tick(round, 61000);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_string_equal(
        facts_text(&round->verdict.failures[0].facts),
        "19 n1\n"
        "20 n2: last contact 60.0 s ago: it has left: SIGTERM from pid 7\n");
}

ROUND_TEST(an_absent_node_of_a_later_round_is_not_said_to_have_never_connected)
{
    const struct ct_leave leave = {0};
    const struct ct_heartbeat beat = {0};
    struct round *round = create(2, 2, 0);

    for (uint64_t id = 1; id <= 2; id++) {
        add_on(round, id, "same", 0);
        join(round, id, 0);
    }
    say(round, 2, CT_MESSAGE_LEAVE, &leave, 1000);
    stopped(round, 2, 1000);
    stopped(round, 1, 1000);
    join(round, 1, 1000);
    for (uint64_t now_ms = 1000; now_ms < 61000; now_ms += 1000)
        say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
    tick(round, 61000);
    assert_string_equal(
        facts_text(&round->verdict.failures[0].facts),
        "19 same\n"
        "20 1 node: did not join this round (their names are not known here)\n");
}

ROUND_TEST(absent_nodes_without_names_are_counted)
{
    struct round *round = create(40, 40, 0);
    const struct ct_heartbeat beat = {0};
    char name[32];

    add(round, 1, 0);
    join(round, 1, 0);
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "other%d", i);
        round_note_refused(round, name, NULL, CTRUN_E_VERSION, 0);
    }
    for (uint64_t now_ms = 0; now_ms < 60000; now_ms += 1000)
        say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
    tick(round, 60000);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_non_null(
        strstr(facts_text(&round->verdict.failures[0].facts), "other3: last contact"));
    assert_non_null(strstr(facts_text(&round->verdict.failures[0].facts), " more\n"));
    round = create(3, 3, 0);
    add(round, 1, 0);
    join(round, 1, 0);
    for (uint64_t now_ms = 0; now_ms < 60000; now_ms += 1000)
        say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
    tick(round, 60000);
    assert_string_equal(
        ct_facts_find(&round->verdict.failures[0].facts, CT_FACT_MISSING),
        "2 nodes: never connected (their names are not known here)");
}

/* Each comes again and again. */
ROUND_TEST(nodes_for_which_the_server_has_no_room_are_not_counted_twice)
{
    struct round *round = create(40, 40, 0);
    const struct ct_heartbeat beat = {0};
    const char *facts;
    char name[32];

    add(round, 1, 0);
    join(round, 1, 0);
    for (uint64_t now_ms = 0; now_ms < 60000; now_ms += 1000) {
        for (int i = 0; i < 20; i++) {
            snprintf(name, sizeof name, "o%d", i);
            round_note_refused(round, name, NULL, -EXFULL, now_ms);
        }
        say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
    }
    assert_int_equal(round->contacts.more, 0);
    assert_true(round->contacts.has_uncounted);
    contacts_remove(&round->contacts, "o0"); /* joined, and left: a place is free */
    while (round->contacts.count > 1)
        contacts_remove(&round->contacts, round->contacts.list[1].host);
    tick(round, 60000);
    facts = facts_text(&round->verdict.failures[0].facts);
    assert_non_null(strstr(facts, "o1: last contact 1.0 s ago: refused with "
                                  "E_RESOURCES: the rendezvous server is full\n"));
    assert_non_null(strstr(
        facts, "38 nodes: did not join this round (their names are not known here)\n"));
}

ROUND_TEST(survivors_of_a_loss_have_the_whole_grace)
{
    struct round *round = start(1, 2, 0);
    struct ct_stopping stopping = {0};
    const struct ct_heartbeat beat = {0};
    uint64_t now_ms = 100;

    gone(round, 2, now_ms);
    stopping = (struct ct_stopping){.generation = round->generation,
                                    .grace_ms = 100000};
    for (; now_ms < 160000; now_ms += 1000) { /* join_timeout_ms is 60000 */
        /* A second call does not make it longer. */
        say(round, 1, CT_MESSAGE_STOPPING, &stopping, now_ms);
        say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, now_ms);
        tick(round, now_ms);
        assert_int_equal(round->state, ROUND_STOPPING);
        assert_int_equal(round->members.count, 1);
    }
    tick(round, now_ms + 100);
    assert_int_equal(count_actions(round, ROUND_DROP), 1);
}

static struct round *found(size_t nodes)
{
    const struct round_settings settings = {.min_nodes = 1,
                                            .max_nodes = 2,
                                            .join_timeout_ms = 1500,
                                            .lost_after_ms = 5000,
                                            .found_after_ms = 3000};
    struct round *round = make(&settings);

    for (uint64_t id = 1; id <= nodes; id++) {
        add(round, id, 0);
        join(round, id, 0);
    }
    return round;
}

ROUND_TEST(a_server_that_knows_nothing_listens_before_it_founds_a_small_world)
{
    struct round *small = found(1), *full = found(2);

    assert_int_equal(full->state, ROUND_RUNNING);
    tick(small, 1500); /* the join deadline comes before */
    assert_int_equal(small->state, ROUND_FORMING);
    tick(small, 2999);
    assert_int_equal(small->state, ROUND_FORMING);
    tick(small, 3000);
    assert_int_equal(small->state, ROUND_RUNNING);
}

/* With --ha a world may live elsewhere, however many new nodes are here. */
ROUND_TEST(a_founder_waits_before_any_world_if_it_has_to)
{
    struct round *round = create(1, 1, 0);

    round_wait(round, 3000);
    add(round, 1, 0);
    join(round, 1, 0);
    tick(round, 2999);
    assert_int_equal(round->state, ROUND_FORMING);
    assert_int_equal(round_next_ms(round), 3000);
    tick(round, 3000);
    assert_int_equal(round->state, ROUND_RUNNING);
}

/* The server learns of workers of another run after all nodes have joined. */
ROUND_TEST(who_waits_for_workers_elsewhere_is_told)
{
    struct round *round = create(2, 2, 0);
    const uint64_t outlive_ms = round_outlive_ms(round->settings.lost_after_ms);

    round_wait(round, 3000); /* nothing is known of them yet */
    add(round, 1, 0);
    add(round, 2, 0);
    join(round, 1, 0);
    join(round, 2, 0);
    tick(round, 1000);
    assert_int_equal(round->waiting.joined, 2);
    assert_int_equal(round->waiting.held_ms, 0);
    round_hold(round, 2500);
    assert_int_equal(round_next_ms(round), 2500);
    tick(round, 2500);
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 2);
    assert_int_equal(round->waiting.held_ms, outlive_ms);
    round_hold(round, 2600); /* the same again: nothing new to send */
    tick(round, 2600);
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 0);
    assert_int_equal(round->state, ROUND_FORMING);
    assert_int_equal(round->fence_ms, 2600 + outlive_ms);
}

ROUND_TEST(who_waits_for_workers_of_a_lost_node_is_told)
{
    struct round *round = start(1, 2, 0);

    gone(round, 2, 100);
    stopped(round, 1, 200);
    join(round, 1, 300);
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 1);
    assert_int_equal(round->waiting.joined, 1);
    assert_int_equal(round->waiting.held_ms, round_outlive_ms(5000) - 300);
}

/* Workers may live for as long as the last lease that the server gave before it was killed. */
ROUND_TEST(who_waits_for_workers_from_before_a_restart_of_the_server_is_told)
{
    struct round *round = start(1, 1, 1);
    const uint64_t held_ms = 1000 + round_outlive_ms(round->settings.lost_after_ms);

    member_find(&round->members, 1)->link.key = 1;
    assert_int_equal(round_restore(round, 1000, 2000), 0);
    resume(round, 1, 2000);
    report(round, 1, CT_CAUSE_EXIT, 2100);
    stopped(round, 1, 2200);
    join(round, 1, 2300);
    assert_int_equal(round->state, ROUND_FORMING);
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 1);
    assert_int_equal(round->waiting.joined, 1);
    assert_int_equal(round->waiting.held_ms, held_ms - 2300);
    say(round, 1, CT_MESSAGE_HEARTBEAT, &(const struct ct_heartbeat){.generation = 1},
        5000);
    tick(round, held_ms);
    assert_int_equal(round->state, ROUND_RUNNING);
}

/* The next server needs this time. */
ROUND_TEST(it_is_known_until_when_workers_may_live)
{
    struct round *round = start(2, 2, 0);
    const uint64_t outlive_ms = round_outlive_ms(round->settings.lost_after_ms);

    assert_int_equal(round_last_worker_ms(round), outlive_ms);
    report(round, 1, CT_CAUSE_EXIT, 10);
    stopped(round, 1, 20);
    assert_int_equal(round_last_worker_ms(round), outlive_ms);
    stopped(round, 2, 30);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_int_equal(round_last_worker_ms(round), 0);
    round = start(2, 2, 0);
    report(round, 1, CT_CAUSE_EXIT, 10);
    stopped(round, 1, 20);
    gone(round, 2, 30);
    tick(round, 3000);
    assert_int_equal(round->members.count, 1);
    assert_int_equal(round_last_worker_ms(round), outlive_ms);
}

/* The agent's clock is 5 % slow and the server's 5 % fast: (60000 + 2000) * 1.05. */
ROUND_TEST(a_lease_is_waited_for_by_two_wrong_clocks)
{
    assert_int_equal(round_outlive_ms(60000), 65100);
    assert_int_equal(round_outlive_ms(UINT64_MAX), UINT64_MAX);
}

/* The next round keeps it, because other servers have its journal. */
ROUND_TEST(a_run_that_lost_all_its_members_goes_on)
{
    const struct round_settings settings = {.min_nodes = 1,
                                            .max_nodes = 2,
                                            .join_timeout_ms = 600000,
                                            .lost_after_ms = 5000,
                                            .instance = 7,
                                            .is_kept = true};
    struct round *round = make(&settings);
    struct round *next;

    for (uint64_t id = 1; id <= 2; id++) {
        add(round, id, 0);
        join(round, id, 0);
    }
    round->restart_count = 2;
    tick(round, 5000);
    tick(round, round_outlive_ms(5000) + 1);
    assert_int_equal(count_actions(round, ROUND_FORGET), 0);
    assert_true(round_is_deserted(round));
    next = make(&(struct round_settings){
        .min_nodes = 1, .max_nodes = 1, .lost_after_ms = 5000, .instance = 8});
    round_succeed(next, round);
    assert_int_equal(next->settings.instance, 7);
    assert_int_equal(next->restart_count, 2);
}

ROUND_TEST(a_thousand_members_lost_at_once_end_in_one_tick)
{
    struct round *round = start(1, 1000, 0);

    tick(round, 5000);
    assert_int_equal(count_actions(round, ROUND_DROP), 1000);
    tick(round, round_outlive_ms(5000)); /* no worker of the run lives any more */
    assert_int_equal(count_actions(round, ROUND_FORGET), 1);
}

/* ---- Hangs that are seen from outside ---------------------------------------------------- */

ROUND_TEST(a_rank_that_waits_does_not_stop_a_world_where_another_node_makes_progress)
{
    struct round *round = start(2, 2, 0);
    struct ct_heartbeat beat = {.generation = round->generation, .quiet_ms = 300};
    const struct ct_failure waits = {
        .generation = round->generation, .cause = CT_CAUSE_HANG, .age_ms = 1000};

    say(round, 2, CT_MESSAGE_HEARTBEAT, &beat, 10000); /* progress at 9.7 s */
    say(round, 1, CT_MESSAGE_FAILURE, &waits, 10699);
    assert_int_equal(round->state, ROUND_RUNNING);
    say(round, 1, CT_MESSAGE_FAILURE, &waits, 10700);
    assert_int_equal(round->state, ROUND_STOPPING);
}

ROUND_TEST(only_what_others_told_in_this_round_counts_as_their_progress)
{
    struct round *round = start(2, 2, 0);
    struct ct_heartbeat beat = {.generation = round->generation - 1, .quiet_ms = 1};
    const struct ct_failure waits = {
        .generation = round->generation, .cause = CT_CAUSE_HANG, .age_ms = 1000};

    say(round, 2, CT_MESSAGE_HEARTBEAT, &beat, 10000); /* of an old round */
    beat = (struct ct_heartbeat){.generation = round->generation};
    say(round, 2, CT_MESSAGE_HEARTBEAT, &beat, 10000); /* not watched */
    beat.quiet_ms = 1;
    say(round, 1, CT_MESSAGE_HEARTBEAT, &beat, 10000); /* the node itself knows this */
    say(round, 1, CT_MESSAGE_FAILURE, &waits, 10000);
    assert_int_equal(round->state, ROUND_STOPPING);
}
