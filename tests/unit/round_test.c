/* SPDX-License-Identifier: Apache-2.0 */
/* Single steps of the state machine; whole stories are in tests/sim. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "rendezvous/round.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

static struct round *create(uint32_t min, uint32_t max, uint32_t restarts)
{
    const struct round_settings settings = {.min_nodes = min,
                                            .max_nodes = max,
                                            .max_restarts = restarts,
                                            .join_timeout_ms = 60000,
                                            .last_call_ms = 1000,
                                            .lost_after_ms = 5000};
    struct round *round;

    assert_int_equal(round_create(&round, &settings), 0);
    return round;
}

static void add(struct round *round, uint64_t id, uint64_t now_ms)
{
    struct member_link link = {.id = id};

    snprintf(link.host, sizeof link.host, "n%d", (int)id);
    assert_int_equal(
        round_step(round, &(struct round_command){.kind = ROUND_ADD, .link = &link},
                   now_ms),
        0);
}

static void say(struct round *round, uint64_t id, const struct ct_message *message,
                uint64_t now_ms)
{
    const struct round_command command = {
        .kind = ROUND_MESSAGE, .id = id, .message = message};

    assert_int_equal(round_step(round, &command, now_ms), 0);
}

static struct ct_message message_of(enum ct_message_kind kind)
{
    return (struct ct_message){.kind = kind};
}

static void join(struct round *round, uint64_t id, uint64_t now_ms)
{
    struct ct_message message = message_of(CT_MESSAGE_JOIN);

    message.join = (struct ct_join){.slots = 1, .node_rank_hint = -1, .store_port = 9};
    say(round, id, &message, now_ms);
}

static void report(struct round *round, uint64_t id, uint8_t cause, uint64_t now_ms)
{
    struct ct_message message = message_of(CT_MESSAGE_FAILURE);

    message.failure.generation = round->generation;
    message.failure.cause = cause;
    message.failure.code = 7;
    say(round, id, &message, now_ms);
}

static void stopped(struct round *round, uint64_t id, uint64_t now_ms)
{
    struct ct_message message = message_of(CT_MESSAGE_STOPPED);

    message.stopped.generation = round->generation;
    say(round, id, &message, now_ms);
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

static void impossible_settings_are_refused(void **state)
{
    static const struct round_settings bad[] = {
        {.min_nodes = 0, .max_nodes = 1, .lost_after_ms = 1},
        {.min_nodes = 2, .max_nodes = 1, .lost_after_ms = 1},
        {.min_nodes = 1, .max_nodes = 65536, .lost_after_ms = 1},
        {.min_nodes = 1, .max_nodes = 1, .lost_after_ms = 0},
    };
    struct round *round;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(round_create(&round, &bad[i]), -EINVAL);
}

static void a_member_that_finds_no_memory_is_not_added(void **state)
{
    struct round *round = create(1, 3, 0);
    struct member_link link = {.id = 1};
    size_t n = 1;

    (void)state;
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
    round_destroy(round);
}

static void strangers_and_old_generations_change_nothing(void **state)
{
    static const enum ct_message_kind kinds[] = {CT_MESSAGE_SUCCEEDED,
                                                 CT_MESSAGE_STOPPED, CT_MESSAGE_FAILURE,
                                                 CT_MESSAGE_STOPPING};
    struct round *round = start(2, 2, 1);

    (void)state;
    join(round, 99, 0);
    gone(round, 99, 0);
    report(round, 1, CT_CAUSE_EXIT, 0);
    for (uint64_t id = 1; id <= 2; id++)
        stopped(round, id, 0);
    for (uint64_t id = 1; id <= 2; id++)
        join(round, id, 0);
    assert_int_equal(round->generation, 2);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct ct_message late = message_of(kinds[i]);

        late.succeeded.generation = 1; /* each of them begins with it */
        if (kinds[i] == CT_MESSAGE_FAILURE)
            late.failure.cause = CT_CAUSE_EXIT;
        say(round, 1, &late, 0);
        assert_int_equal(round->action_count, 0);
        assert_int_equal(round->members.list[0]->state, MEMBER_RUNNING);
    }
    assert_int_equal(round->restart_count, 1);
    round_destroy(round);
}

static void roles_that_are_not_those_of_the_workers_are_refused(void **state)
{
    struct round *round = create(2, 2, 0);
    struct ct_message message = message_of(CT_MESSAGE_JOIN);

    (void)state;
    add(round, 1, 0);
    message.join = (struct ct_join){
        .slots = 2, .node_rank_hint = -1, .store_port = 9, .roles = {1, {{"a", 1}}}};
    say(round, 1, &message, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(round->refuse.code, CTRUN_E_PROTOCOL);
    round_destroy(round);
}

static void a_join_that_makes_no_sense_is_refused_and_ends_the_member(void **state)
{
    struct round *round = create(2, 2, 0);
    struct ct_message message = message_of(CT_MESSAGE_JOIN);

    (void)state;
    add(round, 1, 0);
    add(round, 2, 0);
    message.join.store_port = 9;
    say(round, 1, &message, 0); /* no workers */
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(round->refuse.code, CTRUN_E_PROTOCOL);
    message.join.slots = 1;
    message.join.store_port = 0;
    say(round, 2, &message, 0); /* no store */
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(count_actions(round, ROUND_FORGET), 1);
    round_destroy(round);
}

static void the_fingerprint_goes_with_the_last_node_that_had_it(void **state)
{
    struct round *round = create(2, 2, 0);
    struct ct_message message = message_of(CT_MESSAGE_JOIN);

    (void)state;
    for (uint64_t id = 1; id <= 3; id++)
        add(round, id, 0);
    join(round, 1, 0);
    message.join = (struct ct_join){.slots = 1, .store_port = 9, .fingerprint = 5};
    say(round, 2, &message, 0);
    assert_int_equal(round->refuse.code, CTRUN_E_FINGERPRINT);
    gone(round, 1, 0);
    say(round, 3, &message, 0);
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 0);
    round_destroy(round);
}

static void waiting_is_told_at_most_once_a_second(void **state)
{
    struct round *round = create(50, 50, 0);
    size_t told = 0;

    (void)state;
    for (uint64_t id = 1; id <= 40; id++)
        add(round, id, 1);
    for (uint64_t id = 1; id <= 40; id++) {
        join(round, id, id);
        told += count_actions(round, ROUND_SEND_WAITING);
    }
    assert_int_equal(told, 1); /* the first, at once */
    assert_int_equal(round_next_ms(round), 1001);
    tick(round, 1001);
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 40);
    assert_int_equal(round->waiting.joined, 40);
    assert_int_equal(round->waiting.left_ms, 59000);
    tick(round, 2500);
    assert_int_equal(count_actions(round, ROUND_SEND_WAITING), 0); /* nothing new */
    round_destroy(round);
}

static void endless_timeouts_do_not_wrap_around(void **state)
{
    const struct round_settings settings = {.min_nodes = 1,
                                            .max_nodes = 2,
                                            .join_timeout_ms = UINT64_MAX,
                                            .last_call_ms = UINT64_MAX - 1,
                                            .lost_after_ms = 5000};
    struct round *round;

    (void)state;
    assert_int_equal(round_create(&round, &settings), 0);
    add(round, 1, 1000);
    join(round, 1, 1000);
    tick(round, 5000);
    assert_int_equal(round->state, ROUND_FORMING);
    assert_int_equal(round->members.count, 1);
    round_destroy(round);
}

static void the_static_endpoint_replaces_the_store_port(void **state)
{
    const struct round_settings settings = {.min_nodes = 1,
                                            .max_nodes = 1,
                                            .join_timeout_ms = 1000,
                                            .lost_after_ms = 5000,
                                            .endpoint_port = 29500};
    struct round *round;

    (void)state;
    assert_int_equal(round_create(&round, &settings), 0);
    add(round, 1, 0);
    join(round, 1, 0);
    assert_int_equal(round->members.list[0]->start.master_port, 29500);
    round_destroy(round);
}

static void an_unkillable_worker_ends_the_run_whatever_the_budget(void **state)
{
    struct round *round = start(1, 2, 9);

    (void)state;
    report(round, 1, CT_CAUSE_UNKILLABLE, 10);
    assert_int_equal(round->stop.is_final, 1);
    stopped(round, 1, 20);
    stopped(round, 2, 20);
    assert_int_equal(round->state, ROUND_CLOSED);
    assert_int_equal(round->verdict.exit_code, 76);
    round_destroy(round);
}

static void what_fails_after_a_loss_is_its_consequence_and_costs_nothing(void **state)
{
    struct round *round = start(1, 2, 0);

    (void)state;
    gone(round, 2, 100);
    assert_int_equal(round->stop.reason, CT_STOP_NODE_LOST);
    report(round, 1, CT_CAUSE_EXIT, 110); /* connection reset by peer */
    stopped(round, 1, 200);
    join(round, 1, 300);
    assert_int_equal(round->state,
                     ROUND_FORMING); /* until the lease of member 2 is over */
    assert_int_equal(round_next_ms(round), 5000);
    tick(round, 5000);
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->restart_count, 0);
    round_destroy(round);
}

static void answer(struct round *round, uint64_t id, uint64_t now_ms)
{
    struct ct_message message = message_of(CT_MESSAGE_STOPPING);

    message.stopping.generation = round->generation;
    say(round, id, &message, now_ms);
}

static void a_failure_is_decided_when_all_others_have_answered(void **state)
{
    struct round *round = start(1, 3, 1);
    struct ct_message beat = message_of(CT_MESSAGE_HEARTBEAT);

    (void)state;
    report(round, 1, CT_CAUSE_EXIT, 10);
    assert_int_equal(round->stop.reason, CT_STOP_UNDECIDED);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 3);
    answer(round, 2, 11);
    say(round, 3, &beat, 11); /* on its way since before the STOP: no answer */
    assert_true(round->is_undecided);
    answer(round, 3, 12);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 3);
    assert_int_equal(round->stop.reason, CT_STOP_FAILURE);
    assert_int_equal(round->stop.restart_count, 1);
    answer(round, 3, 13);
    assert_int_equal(round->action_count, 0);
    round_destroy(round);
}

static void a_member_lost_before_it_answered_is_the_root_cause(void **state)
{
    struct round *round = start(1, 3, 0);

    (void)state;
    report(round, 1, CT_CAUSE_EXIT, 10);
    stopped(round, 1, 11);
    join(round, 1, 12);
    gone(round, 3, 13);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP),
                     2); /* also to who has joined */
    assert_int_equal(round->stop.reason, CT_STOP_NODE_LOST);
    assert_string_equal(round->stop.cause.host, "n3");
    assert_int_equal(round->stop.is_final, 0);
    assert_string_equal(failures_get_root(&round->failures)->host, "n3");
    round_destroy(round);
}

static void a_lone_node_needs_no_answer(void **state)
{
    struct round *round = start(1, 1, 0);

    (void)state;
    report(round, 1, CT_CAUSE_EXIT, 10);
    assert_int_equal(round->stop.reason, CT_STOP_FAILURE);
    assert_int_equal(round->stop.is_final, 1);
    stopped(round, 1, 11);
    assert_int_equal(round->verdict.exit_code, 7);
    round_destroy(round);
}

/* Early failures of member 1, alone in its world, until the run is over. */
static uint32_t fail_early(struct round *round, uint8_t cause, int32_t code)
{
    struct ct_message message = message_of(CT_MESSAGE_FAILURE);
    uint32_t tries = 0;

    for (uint64_t now_ms = 10; round->state == ROUND_RUNNING; now_ms += 10, tries++) {
        message.failure = (struct ct_failure){.generation = round->generation,
                                              .cause = cause,
                                              .code = code,
                                              .step = -1,
                                              .is_early = 1};
        say(round, 1, &message, now_ms);
        stopped(round, 1, now_ms + 1);
        if (round->state == ROUND_FORMING)
            join(round, 1, now_ms + 2);
    }
    return tries;
}

static void the_same_early_failure_twice_ends_the_run(void **state)
{
    struct round *round = start(1, 1, 5);

    (void)state;
    assert_int_equal(fail_early(round, CT_CAUSE_EXIT, 3), 2);
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_CRASH_LOOP);
    assert_int_equal(round->verdict.exit_code, 3);
    assert_int_equal(round->verdict.restart_count, 1);
    assert_int_equal(round->stop.is_final, 1);
    round_destroy(round);
}

/* Member 2 fails first; all stop and join again. */
static void fail_on_second_node(struct round *round, uint64_t now_ms)
{
    struct ct_message message = message_of(CT_MESSAGE_FAILURE);

    message.failure = (struct ct_failure){.generation = round->generation,
                                          .cause = CT_CAUSE_SIGNAL,
                                          .code = 11,
                                          .rank = 1,
                                          .node_rank = 1,
                                          .is_early = 1};
    say(round, 2, &message, now_ms);
    answer(round, 1, now_ms);
    stopped(round, 2, now_ms);
    join(round, 2, now_ms);
    stopped(round, 1, now_ms);
}

static void tell(struct round *round, uint64_t id, int32_t code, uint64_t age_ms,
                 uint64_t now_ms)
{
    struct ct_message message = message_of(CT_MESSAGE_FAILURE);

    message.failure = (struct ct_failure){.generation = round->generation,
                                          .cause = CT_CAUSE_EXIT,
                                          .code = code,
                                          .rank = (int32_t)id - 1,
                                          .node_rank = (int32_t)id - 1,
                                          .is_early = 1,
                                          .age_ms = age_ms};
    say(round, id, &message, now_ms);
}

/* Node 1 tells first, and unlike each time, of what follows from the failure of node 2. */
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

static void who_failed_first_but_tells_late_is_charged(void **state)
{
    struct round *round = start(2, 2, 5);

    (void)state;
    fail_on_second_node_late(round, 1200);
    assert_int_equal(round->restart_count, 1);
    join(round, 1, 1700);
    fail_on_second_node_late(round, 2400);
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_CRASH_LOOP);
    assert_int_equal(round->verdict.exit_code, 5);
    assert_int_equal(round->verdict.failures[0].rank, 1);
    assert_int_equal(round->verdict.failures[1].rank, 0);
    assert_int_equal(round->verdict.failures[1].later_ms, 699);
    round_destroy(round);
}

static void what_is_told_after_the_decision_changes_it_no_more(void **state)
{
    struct round *round = start(2, 2, 0);

    (void)state;
    tell(round, 1, 4, 1, 10000);
    answer(round, 2, 10001);
    assert_int_equal(round->stop.cause.rank, 0);
    tell(round, 2, 5, 9000, 10002);
    stopped(round, 2, 10003);
    stopped(round, 1, 10003);
    assert_int_equal(round->verdict.exit_code, 4);
    assert_int_equal(round->verdict.failures[0].rank, 0);
    round_destroy(round);
}

/* The server was busy: both messages lay there, and it read them at once. */
static void how_long_a_message_lay_unread_counts(void **state)
{
    struct round *round = start(2, 2, 0);
    struct ct_message message = message_of(CT_MESSAGE_FAILURE);
    struct round_command command = {
        .kind = ROUND_MESSAGE, .id = 1, .message = &message, .waited_ms = 2000};

    (void)state;
    message.failure = (struct ct_failure){
        .generation = 1, .cause = CT_CAUSE_EXIT, .code = 4, .age_ms = 1};
    assert_int_equal(round_step(round, &command, 10000), 0);
    tell(round, 2, 5, 1000, 10000);
    answer(round, 2, 10000);
    assert_int_equal(round->stop.cause.code, 4);
    round_destroy(round);
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

static void a_node_that_fails_first_twice_makes_room_for_a_spare(void **state)
{
    struct round *round = start_with_spare();

    (void)state;
    fail_on_second_node(round, 10);
    assert_string_equal(round->stop.cause.facts, "");
    join(round, 1, 20);
    assert_int_equal(round->generation, 2);
    fail_on_second_node(round, 30);
    assert_non_null(strstr(round->stop.cause.facts, "excluded\tn2 excluded: "));
    assert_int_equal(count_actions(round, ROUND_SEND_REFUSE), 1);
    assert_int_equal(round->refuse.code, CTRUN_E_EXCLUDED);
    join(round, 1, 40);
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->generation, 3);
    assert_int_equal(round->restart_count, 2);
    assert_int_equal(round->members.count, 2);
    assert_int_equal(round->members.list[1]->link.id, 3);
    round_destroy(round);
}

static void a_node_that_fails_first_and_tells_late_makes_room_as_well(void **state)
{
    struct round *round = start_with_spare();

    (void)state;
    fail_on_second_node_late(round, 1200);
    join(round, 1, 1700);
    fail_on_second_node_late(round, 2400);
    assert_non_null(strstr(round->stop.cause.facts, "excluded\tn2 excluded: "));
    round_destroy(round);
}

static void without_a_spare_the_node_stays_and_a_crash_loop_is_one(void **state)
{
    struct round *round = start(2, 2, 5);

    (void)state;
    fail_on_second_node(round, 10);
    join(round, 1, 20);
    fail_on_second_node(round, 30);
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_CRASH_LOOP);
    round_destroy(round);
}

static void a_program_that_is_missing_is_not_started_again(void **state)
{
    struct round *round = start(1, 1, 5);

    (void)state;
    assert_int_equal(fail_early(round, CT_CAUSE_EXEC, ENOENT), 1);
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_FAILED);
    assert_int_equal(round->verdict.exit_code, 127);
    round_destroy(round);
}

static void who_ended_early_with_zero_is_told_and_no_cause(void **state)
{
    struct round *round = start(1, 2, 0);
    struct ct_message message = message_of(CT_MESSAGE_STOPPED);

    (void)state;
    message.stopped = (struct ct_stopped){.generation = 1, .failure_count = 1};
    message.stopped.failures[0] = (struct ct_failure){
        .generation = 1, .cause = CT_CAUSE_EARLY, .rank = 1, .pid = 5};
    report(round, 1, CT_CAUSE_EXIT, 10);
    say(round, 2, &message, 20);
    stopped(round, 1, 20);
    assert_int_equal(round->verdict.failure_count, 2);
    assert_int_equal(round->verdict.failures[0].cause, CT_CAUSE_EXIT);
    assert_int_equal(round->verdict.failures[1].cause, CT_CAUSE_EARLY);
    round_destroy(round);
}

static void close_while_undecided_ends_the_run_as_closed(void **state)
{
    struct round *round = start(1, 2, 5);
    struct ct_message message = message_of(CT_MESSAGE_CLOSE);

    (void)state;
    report(round, 1, CT_CAUSE_EXIT, 10);
    message.close.exit_code = 9;
    say(round, 1, &message, 11);
    answer(round, 2, 12);
    assert_int_equal(round->stop.is_final, 1);
    assert_int_equal(round->stop.restart_count, 0);
    stopped(round, 1, 13);
    stopped(round, 2, 13);
    assert_int_equal(round->verdict.outcome, CT_OUTCOME_CLOSED);
    assert_int_equal(round->verdict.exit_code, 9);
    round_destroy(round);
}

static void ask_restart(struct round *round, uint64_t id, uint64_t now_ms)
{
    struct ct_message message = message_of(CT_MESSAGE_RESTART);

    message.restart = (struct ct_restart){.reason = "new data", .ticket = 4};
    say(round, id, &message, now_ms);
    assert_int_equal(count_actions(round, ROUND_SEND_RESTART), 1);
    assert_int_equal(round->restart.ticket, 4);
    assert_true(round->restart.is_answer);
}

static void a_restart_that_is_asked_for_stops_all_and_costs_none(void **state)
{
    struct round *round = start(2, 2, 1);

    (void)state;
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
    report(round, 1, CT_CAUSE_EXIT, 11); /* it did not like to be stopped */
    for (uint64_t id = 1; id <= 2; id++) {
        stopped(round, id, 12);
        join(round, id, 12);
    }
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->generation, 2);
    assert_int_equal(round->restart_count, 0);
    round_destroy(round);
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

static void a_restart_is_refused_when_nothing_runs_or_the_run_ends(void **state)
{
    struct round *round = create(2, 2, 1);
    struct ct_message message = message_of(CT_MESSAGE_SUCCEEDED);

    (void)state;
    add(round, 1, 0);
    join(round, 1, 0);
    refused(round, 1, "waits for nodes");
    round_destroy(round);

    round = start(2, 2, 1);
    ask_restart(round, 1, 10);
    refused(round, 2, "being stopped already");
    round_destroy(round);

    round = start(2, 2, 1);
    message.succeeded.generation = 1;
    say(round, 1, &message, 10);
    refused(round, 2, "have succeeded");
    round_destroy(round);

    round = start(1, 1, 0);
    report(round, 1, CT_CAUSE_EXIT, 10); /* no restart is left */
    refused(round, 1, "the run is ending");
    stopped(round, 1, 11);
    assert_int_equal(round->state, ROUND_CLOSED);
    refused(round, 1, "the run is ending");
    round_destroy(round);
}

static void a_node_that_stopped_by_itself_brings_a_new_round(void **state)
{
    struct round *round = start(2, 2, 0);

    (void)state;
    stopped(round, 1, 10);
    assert_int_equal(round->state, ROUND_STOPPING);
    assert_int_equal(count_actions(round, ROUND_SEND_STOP), 2); /* itself as well */
    stopped(round, 2, 20);
    assert_int_equal(round->state, ROUND_FORMING);
    join(round, 1, 30);
    join(round, 2, 30);
    assert_int_equal(round->generation, 2);
    round_destroy(round);
}

static void
a_member_that_never_says_stopped_does_not_hold_the_others_for_ever(void **state)
{
    struct round *round = start(1, 2, 1);

    (void)state;
    report(round, 1, CT_CAUSE_EXIT, 0);
    stopped(round, 1, 0);
    join(round, 1, 0);
    for (uint64_t now_ms = 1000; now_ms < 66000; now_ms += 1000) {
        struct ct_message beat = message_of(CT_MESSAGE_HEARTBEAT);

        say(round, 1, &beat, now_ms);
        say(round, 2, &beat, now_ms);
        tick(round, now_ms);
    }
    assert_int_equal(round->state, ROUND_RUNNING);
    assert_int_equal(round->world_count, 1);
    round_destroy(round);
}

static void a_thousand_members_lost_at_once_end_in_one_tick(void **state)
{
    struct round *round = start(1, 1000, 0);

    (void)state;
    tick(round, 5000);
    assert_int_equal(count_actions(round, ROUND_DROP), 1000);
    assert_int_equal(count_actions(round, ROUND_FORGET), 1);
    round_destroy(round);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_settings_are_refused),
        cmocka_unit_test(a_member_that_finds_no_memory_is_not_added),
        cmocka_unit_test(strangers_and_old_generations_change_nothing),
        cmocka_unit_test(roles_that_are_not_those_of_the_workers_are_refused),
        cmocka_unit_test(a_join_that_makes_no_sense_is_refused_and_ends_the_member),
        cmocka_unit_test(the_fingerprint_goes_with_the_last_node_that_had_it),
        cmocka_unit_test(waiting_is_told_at_most_once_a_second),
        cmocka_unit_test(endless_timeouts_do_not_wrap_around),
        cmocka_unit_test(the_static_endpoint_replaces_the_store_port),
        cmocka_unit_test(an_unkillable_worker_ends_the_run_whatever_the_budget),
        cmocka_unit_test(what_fails_after_a_loss_is_its_consequence_and_costs_nothing),
        cmocka_unit_test(a_failure_is_decided_when_all_others_have_answered),
        cmocka_unit_test(a_member_lost_before_it_answered_is_the_root_cause),
        cmocka_unit_test(a_lone_node_needs_no_answer),
        cmocka_unit_test(the_same_early_failure_twice_ends_the_run),
        cmocka_unit_test(a_node_that_fails_first_twice_makes_room_for_a_spare),
        cmocka_unit_test(without_a_spare_the_node_stays_and_a_crash_loop_is_one),
        cmocka_unit_test(a_program_that_is_missing_is_not_started_again),
        cmocka_unit_test(who_ended_early_with_zero_is_told_and_no_cause),
        cmocka_unit_test(close_while_undecided_ends_the_run_as_closed),
        cmocka_unit_test(who_failed_first_but_tells_late_is_charged),
        cmocka_unit_test(what_is_told_after_the_decision_changes_it_no_more),
        cmocka_unit_test(how_long_a_message_lay_unread_counts),
        cmocka_unit_test(a_node_that_fails_first_and_tells_late_makes_room_as_well),
        cmocka_unit_test(a_restart_that_is_asked_for_stops_all_and_costs_none),
        cmocka_unit_test(a_restart_is_refused_when_nothing_runs_or_the_run_ends),
        cmocka_unit_test(a_node_that_stopped_by_itself_brings_a_new_round),
        cmocka_unit_test(
            a_member_that_never_says_stopped_does_not_hold_the_others_for_ever),
        cmocka_unit_test(a_thousand_members_lost_at_once_end_in_one_tick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
