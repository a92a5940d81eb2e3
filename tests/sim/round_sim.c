/* SPDX-License-Identifier: Apache-2.0 */
/* Stories of whole runs. sim.c checks what must hold in every story. */
#include "tests/lib/test.h"
#include "tests/sim/sim.h"
#include "worker_sdk/base/str.h"

static struct sim sim; /* the current story */

static struct round_settings settings(uint32_t min, uint32_t max, uint32_t restarts)
{
    return (struct round_settings){.min_nodes = min,
                                   .max_nodes = max,
                                   .max_restarts = restarts,
                                   .join_timeout_ms = 60000,
                                   .last_call_ms = 30000,
                                   .lost_after_ms = 5000};
}

static struct round_settings patient(uint32_t min, uint32_t max)
{
    struct round_settings s = settings(min, max, 0);

    s.pause_ms = CT_PAUSE_LEASES * s.lost_after_ms;
    return s;
}

static void begin_with(struct round_settings s, size_t nodes, uint64_t seed)
{
    sim_deinit(&sim);
    sim_init(&sim, &s, nodes, seed);
}

static void begin(struct round_settings s, size_t nodes)
{
    begin_with(s, nodes, 42);
}

static int end(void **state)
{
    sim_deinit(&sim);
    return 0;
}

static void join_all(void)
{
    for (size_t i = 0; i < sim.node_count; i++)
        sim_join_at(&sim, 10 * i, i);
}

static void succeed_after(int64_t ms)
{
    for (size_t i = 0; i < sim.node_count; i++)
        sim.nodes[i].succeeds_after_ms = ms;
}

static void assert_verdict(size_t i, int outcome, int exit_code)
{
    assert_int_equal(sim.nodes[i].verdict.outcome, outcome);
    assert_int_equal(sim.nodes[i].verdict.exit_code, exit_code);
}

TEST(a_full_world_starts_at_once_and_succeeds)
{
    begin(settings(1, 4, 0), 4);
    join_all();
    succeed_after(5000);
    sim_run(&sim, 100000);
    assert_true(sim.first_start_ms < 1000); /* no last call is needed */
    for (size_t i = 0; i < 4; i++) {
        assert_verdict(i, CT_OUTCOME_SUCCEEDED, 0);
        assert_int_equal(sim.nodes[i].starts, 1);
        assert_int_equal(sim.nodes[i].verdict.failure_count, 0);
    }
    assert_true(sim.was_forgotten);
}

TEST(last_call_starts_with_those_who_came)
{
    begin(settings(2, 4, 0), 3);
    join_all();
    succeed_after(5000);
    sim_run(&sim, 100000);
    assert_true(sim.first_start_ms >= 30000 && sim.first_start_ms < 31000);
    assert_int_equal(sim.nodes[2].start.group_world_size, 3);
}

TEST(a_late_node_is_taken_in_and_costs_no_restart)
{
    begin(settings(1, 2, 0), 2);
    sim_join_at(&sim, 0, 0);
    sim_join_at(&sim, 50000, 1);
    sim_run(&sim, 60000);
    assert_int_equal(sim.nodes[0].starts, 2);
    assert_int_equal(sim.nodes[0].start.generation, 2);
    assert_int_equal(sim.nodes[0].stop.reason, CT_STOP_MEMBERSHIP);
    assert_int_equal(sim.nodes[0].start.restart_count, 0);
    assert_int_equal(sim.nodes[1].start.group_rank, 1);
    assert_int_equal(sim.nodes[1].start.group_world_size, 2);
}

TEST(a_powered_off_node_is_replaced_by_fewer_within_ten_seconds)
{
    begin(settings(1, 3, 0), 3);
    join_all();
    sim_fault_at(&sim, 20000, 1, SIM_POWER_OFF, 0);
    sim_run(&sim, 40000);
    assert_true(sim.last_start_ms > 20000 && sim.last_start_ms < 30000);
    assert_int_equal(sim.nodes[0].stop.reason, CT_STOP_NODE_LOST);
    assert_int_equal(sim.nodes[0].stop.cause.cause, CT_CAUSE_NODE_LOST);
    assert_string_equal(sim.nodes[0].stop.cause.host, "n1");
    assert_int_equal(sim.nodes[2].start.group_world_size, 2);
    assert_int_equal(sim.nodes[2].start.group_rank, 1);
    assert_int_equal(sim.nodes[2].start.restart_count, 0);
}

static void assert_undisturbed(void)
{
    for (size_t i = 0; i < sim.node_count; i++) {
        assert_int_equal(sim.nodes[i].starts, 1);
        assert_verdict(i, CT_OUTCOME_SUCCEEDED, 0);
        assert_int_equal(sim.nodes[i].verdict.restart_count, 0);
    }
    assert_true(sim.was_forgotten);
}

TEST(a_broken_link_costs_nothing)
{
    begin(settings(2, 2, 0), 2);
    join_all();
    succeed_after(30000);
    sim_fault_at(&sim, 20000, 1, SIM_BREAK, 0);
    sim_fault_at(&sim, 22000, 0, SIM_BREAK, 0);
    sim_fault_at(&sim, 22000, 1, SIM_BREAK, 0);
    sim_run(&sim, 100000);
    assert_undisturbed();
    assert_int_equal(sim.nodes[1].resumes, 2);
}

TEST(a_server_that_is_killed_and_begins_again_costs_nothing)
{
    begin(settings(1, 5, 0), 5);
    join_all();
    succeed_after(60000);
    sim_fault_at(&sim, 40000, 0, SIM_CRASH, 1000);
    sim_fault_at(&sim, 50000, 0, SIM_CRASH, 2500);
    sim_run(&sim, 200000);
    assert_undisturbed();
    assert_int_equal(sim.nodes[4].resumes, 2);
}

TEST(what_happens_while_the_server_is_away_is_told_to_the_next_one)
{
    begin(settings(3, 3, 1), 3);
    join_all();
    for (size_t i = 0; i < 3; i++)
        sim.nodes[i].succeeds_after_ms = 30000 + (int64_t)i * 100;
    sim_fault_at(&sim, 10000, 0, SIM_CRASH, 2000);
    sim_fault_at(&sim, 11000, 1, SIM_FAIL, 3);
    sim_run(&sim, 20000);
    assert_int_equal(sim.nodes[2].starts, 2);
    assert_int_equal(sim.nodes[2].start.restart_count, 1);
    assert_int_equal(sim.nodes[2].stop.reason, CT_STOP_FAILURE);
    sim_fault_at(&sim, sim.last_start_ms + 29900, 0, SIM_CRASH, 2000);
    sim_run(&sim, 200000); /* all workers succeed while the server is down */
    for (size_t i = 0; i < 3; i++) {
        assert_verdict(i, CT_OUTCOME_SUCCEEDED, 0);
        assert_int_equal(sim.nodes[i].starts, 2);
    }
}

TEST(a_node_that_dies_with_the_server_is_found_by_the_next_one)
{
    begin(settings(1, 3, 0), 3);
    join_all();
    sim_fault_at(&sim, 20000, 1, SIM_POWER_OFF, 0);
    sim_fault_at(&sim, 20100, 0, SIM_CRASH, 500);
    sim_run(&sim, 40000);
    assert_true(sim.last_start_ms >= 25600 && sim.last_start_ms < 30000);
    assert_int_equal(sim.nodes[2].stop.reason, CT_STOP_NODE_LOST);
    assert_int_equal(sim.nodes[2].start.group_world_size, 2);
    assert_int_equal(sim.nodes[2].start.restart_count, 0);
}

/* The leases end before the server is back: no worker lives then, and the agents join as new
 * members. */
TEST(a_server_that_is_away_for_too_long_finds_no_worker)
{
    begin(settings(2, 2, 0), 2);
    join_all();
    sim_fault_at(&sim, 20000, 0, SIM_CRASH, 8000);
    sim_run(&sim, 27000);
    assert_int_equal(sim.alive_count, 0);
    sim_run(&sim, 60000);
    assert_int_equal(sim.nodes[0].starts, 2);
    assert_int_equal(sim.nodes[1].starts, 2);
}

TEST(too_few_nodes_wait_for_a_replacement_then_give_up)
{
    begin(settings(2, 2, 0), 2);
    join_all();
    sim_fault_at(&sim, 20000, 1, SIM_POWER_OFF, 0);
    sim_run(&sim, 200000);
    assert_verdict(0, CT_OUTCOME_NODES_LOST, 75);
    assert_int_equal(sim.nodes[0].verdict.failures[0].cause, CT_CAUSE_NODE_LOST);
    assert_true(sim.now_ms >= 80000);
}

TEST(a_replacement_in_time_continues_the_run)
{
    begin(settings(2, 2, 0), 3);
    sim_join_at(&sim, 0, 0);
    sim_join_at(&sim, 0, 1);
    sim_fault_at(&sim, 20000, 1, SIM_POWER_OFF, 0);
    sim_join_at(&sim, 60000, 2);
    sim_run(&sim, 70000);
    assert_int_equal(sim.nodes[0].start.generation, 2);
    assert_int_equal(sim.nodes[2].start.generation, 2);
}

TEST(a_spare_takes_the_place_of_a_lost_node)
{
    begin(settings(2, 2, 0), 3);
    sim_join_at(&sim, 0, 0);
    sim_join_at(&sim, 0, 1);
    sim_join_at(&sim, 5000, 2);
    sim_run(&sim, 19000);
    assert_true(sim.nodes[2].is_spare);
    assert_int_equal(sim.nodes[2].starts, 0);
    assert_int_equal(sim.nodes[0].starts, 1);
    sim_fault_at(&sim, 20000, 0, SIM_POWER_OFF, 0);
    sim_run(&sim, 30000);
    assert_int_equal(sim.nodes[2].start.generation, 2);
    assert_int_equal(sim.nodes[1].start.group_rank, 0);
    assert_int_equal(sim.nodes[2].start.group_rank, 1);
}

TEST(the_restart_budget_is_one_for_the_whole_run)
{
    begin(settings(3, 3, 2), 3);
    join_all();
    sim_fault_at(&sim, 10000, 0, SIM_FAIL, 5);
    sim_fault_at(&sim, 20000, 1, SIM_FAIL, 6);
    sim_run(&sim, 25000);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(sim.nodes[i].start.restart_count, 2);
        assert_int_equal(sim.nodes[i].start.generation, 3);
        assert_int_equal(sim.nodes[i].stop.restart_count, 2);
    }
    sim_fault_at(&sim, 30000, 2, SIM_FAIL, 7);
    sim_run(&sim, 40000);
    for (size_t i = 0; i < 3; i++) {
        assert_verdict(i, CT_OUTCOME_FAILED, 7);
        assert_int_equal(sim.nodes[i].stop.is_final, 1);
        assert_int_equal(sim.nodes[i].verdict.failures[0].node_rank, 2);
    }
}

TEST(the_first_failure_at_the_server_is_the_root_cause)
{
    begin(settings(3, 3, 0), 3);
    join_all();
    sim_fault_at(&sim, 10000, 1, SIM_FAIL, 11);
    sim_fault_at(&sim, 10050, 2, SIM_FAIL, 12);
    sim_run(&sim, 20000);
    assert_verdict(0, CT_OUTCOME_FAILED, 11);
    assert_int_equal(sim.nodes[0].verdict.failures[0].node_rank, 1);
}

/* Node 1 fails, but its agent is paused and reports this 2 s later; node 2 fails in between. */
static void fail_and_tell_late(uint64_t at_ms)
{
    sim_fault_at(&sim, at_ms, 1, SIM_PAUSE, 2000);
    sim_fault_at(&sim, at_ms + 1, 1, SIM_FAIL, 11);
    sim_fault_at(&sim, at_ms + 500, 2, SIM_FAIL, 12);
}

TEST(who_failed_first_is_the_root_cause_though_it_tells_last)
{
    begin(patient(3, 3), 3);
    join_all();
    fail_and_tell_late(10000);
    sim_run(&sim, 30000);
    for (size_t i = 0; i < 3; i++) {
        const struct ct_verdict *verdict = &sim.nodes[i].verdict;

        assert_verdict(i, CT_OUTCOME_FAILED, 11);
        assert_int_equal(sim.nodes[i].stop.cause.code, 11);
        assert_int_equal(verdict->failures[1].code, 12);
        assert_in_range(verdict->failures[1].later_ms, 450, 550);
    }
}

TEST(without_an_age_the_first_to_tell_is_the_root_cause)
{
    for (size_t old = 1; old < 3; old++) {
        begin(patient(3, 3), 3);
        sim.nodes[old].tells_no_age = true;
        join_all();
        fail_and_tell_late(10000);
        sim_run(&sim, 30000);
        assert_verdict(0, CT_OUTCOME_FAILED, 12);
    }
}

/* A restarted server reads the order of the failures from the journal. */
TEST(the_order_of_failures_outlives_the_server)
{
    begin(patient(3, 3), 3);
    sim.nodes[0].stops_after_ms = 3000;
    join_all();
    fail_and_tell_late(10000);
    sim_fault_at(&sim, 12500, 0, SIM_CRASH, 500);
    sim_run(&sim, 30000);
    for (size_t i = 0; i < 3; i++) {
        assert_verdict(i, CT_OUTCOME_FAILED, 11);
        assert_int_equal(sim.nodes[i].verdict.failures[1].code, 12);
        assert_in_range(sim.nodes[i].verdict.failures[1].later_ms, 450, 550);
    }
}

/* Nodes fail in any order and report this with any delay. */
TEST(random_delays_never_hide_the_first_cause)
{
    enum {
        NODES = 5,
        DOUBT_MS = 100 + 3 * 40
    }; /* limits.h; a round trip and one way of messages */

    for (uint64_t seed = 1; seed <= 500; seed++) {
        const struct round_settings s = patient(NODES, NODES);
        uint64_t failed_ms[NODES], first_ms = UINT64_MAX;
        int code;

        begin_with(s, NODES, seed);
        join_all();
        for (size_t i = 0; i < NODES; i++) {
            failed_ms[i] = 10000 + sim_random(&sim, 2000);
            sim_fault_at(&sim, 9000 + sim_random(&sim, 1000), i, SIM_PAUSE,
                         (int64_t)sim_random(&sim, 3500));
            sim_fault_at(&sim, failed_ms[i], i, SIM_FAIL, (int64_t)i + 1);
            first_ms = failed_ms[i] < first_ms ? failed_ms[i] : first_ms;
        }
        sim_run(&sim, 60000);
        code = sim.nodes[0].verdict.exit_code;
        if (code < 1 || code > NODES || failed_ms[code - 1] > first_ms + DOUBT_MS)
            fail_msg("CTRUN_SIM_SEED=%llu: node %d is blamed", (unsigned long long)seed,
                     code - 1);
    }
}

TEST(a_failure_before_the_silence_of_its_cause_is_free)
{
    begin(settings(1, 2, 0), 2);
    join_all();
    sim_fault_at(&sim, 20000, 1, SIM_POWER_OFF, 0);
    sim_fault_at(&sim, 20005, 0, SIM_FAIL, 1); /* as after "connection reset by peer" */
    sim_run(&sim, 40000);
    assert_int_equal(sim.nodes[0].start.generation, 2);
    assert_int_equal(sim.nodes[0].start.group_world_size, 1);
    assert_int_equal(sim.nodes[0].start.restart_count, 0);
    assert_int_equal(sim.nodes[0].verdict.outcome, 0);
    assert_true(sim.last_start_ms < 30000);
}

/* The failure is decided as soon as all nodes have answered: nobody waits until the slow node has
 * ended its workers, neither for the restart count nor for the final STOP. */
TEST(a_genuine_failure_is_decided_before_slow_workers_end)
{
    begin(settings(3, 3, 1), 3);
    sim.nodes[2].stops_after_ms = 20000;
    join_all();
    sim_fault_at(&sim, 10000, 0, SIM_FAIL, 3);
    sim_run(&sim, 10500);
    assert_int_equal(sim.nodes[2].stop.reason, CT_STOP_FAILURE);
    assert_int_equal(sim.nodes[2].stop.restart_count, 1);
    sim_fault_at(&sim, 40000, 1, SIM_FAIL, 4);
    sim_run(&sim, 40500);
    assert_int_equal(sim.nodes[2].starts, 2);
    assert_int_equal(sim.nodes[2].stop.is_final, 1);
    assert_int_equal(sim.nodes[2].stop.cause.code, 4);
    sim_run(&sim, 70000);
    for (size_t i = 0; i < 3; i++)
        assert_verdict(i, CT_OUTCOME_FAILED, 4);
}

/* A node that answered STOP and died after that is not the cause of the failure. */
TEST(a_loss_after_the_answer_does_not_excuse_the_failure)
{
    begin(settings(1, 3, 1), 3);
    for (size_t i = 0; i < 3; i++)
        sim.nodes[i].stops_after_ms = 700;
    join_all();
    sim_fault_at(&sim, 20000, 0, SIM_FAIL, 3);
    sim_fault_at(&sim, 20500, 2, SIM_POWER_OFF, 0);
    sim_run(&sim, 40000);
    assert_int_equal(sim.nodes[0].start.generation, 2);
    assert_int_equal(sim.nodes[0].start.group_world_size, 2);
    assert_int_equal(sim.nodes[0].start.restart_count, 1);
}

/* One node dies, the workers connected to it fail, and another node ends its workers slowly. */
TEST(many_failures_of_one_loss_are_free_and_the_loss_is_the_root)
{
    begin(settings(4, 4, 0), 4);
    sim.nodes[3].stops_after_ms = 9000;
    join_all();
    sim_fault_at(&sim, 20000, 1, SIM_POWER_OFF, 0);
    sim_fault_at(&sim, 20001, 0, SIM_FAIL, 1);
    sim_fault_at(&sim, 20002, 2, SIM_FAIL, 1);
    sim_run(&sim, 28000);
    assert_int_equal(sim.nodes[3].stop.reason, CT_STOP_NODE_LOST);
    assert_string_equal(sim.nodes[3].stop.cause.host, "n1");
    sim_run(&sim, 200000); /* no replacement joins */
    for (size_t i = 0; i < 4; i += 2) {
        assert_verdict(i, CT_OUTCOME_NODES_LOST, 75);
        assert_int_equal(sim.nodes[i].verdict.failures[0].cause, CT_CAUSE_NODE_LOST);
        assert_int_equal(sim.nodes[i].verdict.failures[1].cause, CT_CAUSE_EXIT);
        assert_int_equal(sim.nodes[i].verdict.restart_count, 0);
    }
}

TEST(a_failure_restarts_also_those_who_had_succeeded)
{
    begin(settings(2, 2, 1), 2);
    join_all();
    sim.nodes[0].succeeds_after_ms = 1000;
    sim.nodes[1].succeeds_after_ms = 8000;
    sim_fault_at(&sim, 5000, 1, SIM_FAIL, 1);
    sim_run(&sim, 60000);
    assert_int_equal(sim.nodes[0].starts, 2);
    assert_verdict(0, CT_OUTCOME_SUCCEEDED, 0);
    assert_int_equal(sim.nodes[0].verdict.restart_count, 1);
}

TEST(a_newcomer_waits_while_a_run_is_finishing)
{
    begin(settings(1, 3, 0), 3);
    sim_join_at(&sim, 0, 0);
    sim_join_at(&sim, 0, 1);
    sim.nodes[0].succeeds_after_ms = 1000;
    sim.nodes[1].succeeds_after_ms = 20000;
    sim_join_at(&sim, 40000, 2);
    sim_run(&sim, 100000);
    assert_int_equal(sim.nodes[0].starts, 1);
    assert_int_equal(sim.nodes[2].starts, 0);
    assert_verdict(2, CT_OUTCOME_SUCCEEDED, 0);
}

TEST(a_leaver_lets_the_others_go_on)
{
    begin(settings(1, 3, 0), 3);
    join_all();
    sim_fault_at(&sim, 10000, 0, SIM_LEAVE, 0);
    sim_run(&sim, 15000);
    assert_int_equal(sim.nodes[1].start.generation, 2);
    assert_int_equal(sim.nodes[1].start.group_world_size, 2);
    assert_int_equal(sim.nodes[1].start.restart_count, 0);
    assert_int_equal(sim.nodes[0].starts, 1);
}

TEST(missing_nodes_end_the_run_at_the_join_deadline)
{
    begin(settings(3, 3, 0), 2);
    join_all();
    sim_run(&sim, 100000);
    for (size_t i = 0; i < 2; i++) {
        assert_verdict(i, CT_OUTCOME_JOIN_TIMEOUT, 75);
        assert_true(sim.nodes[i].waits > 0);
        assert_non_null(strstr(sim.nodes[i].verdict.failures[0].text, "2 of 3 nodes"));
    }
}

TEST(hints_come_first_then_the_endpoint_then_arrival)
{
    begin(settings(4, 4, 0), 4);
    sim.nodes[2].is_endpoint = true;
    sim.nodes[3].hint = 0;
    join_all();
    sim_run(&sim, 10000);
    assert_int_equal(sim.nodes[3].start.group_rank, 0);
    assert_int_equal(sim.nodes[2].start.group_rank, 1);
    assert_int_equal(sim.nodes[0].start.group_rank, 2);
    assert_int_equal(sim.nodes[1].start.group_rank, 3);
    assert_string_equal(sim.nodes[0].start.master_addr, "10.0.0.3");
    assert_int_equal(sim.nodes[0].start.master_port, 1024 + 3);
}

TEST(one_to_a_thousand_nodes_cost_a_few_messages_each)
{
    static const size_t sizes[] = {1, 2, 3, 10, 100, 1000};

    for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++) {
        size_t count = sizes[n];

        begin(settings((uint32_t)count, (uint32_t)count, 1), count);
        for (size_t i = 0; i < count; i++) {
            sim_join_at(&sim, i % 50, i);
            sim.nodes[i].slots = 1 + (uint32_t)i % 8;
        }
        succeed_after(700); /* before the first heartbeat */
        sim_run(&sim, 900);
        assert_verdict(count - 1, CT_OUTCOME_SUCCEEDED, 0);
        assert_int_equal(sim.messages_up, 2 * count); /* JOIN, SUCCEEDED */
        /* START, VERDICT, and at most one WAITING for nodes that joined early */
        assert_true(sim.messages_down >= 2 * count && sim.messages_down <= 3 * count);
    }
}

/* ---- Size -------------------------------------------------------------------------------- */

/* The last to arrive is rank 0, as when a batch system numbers the nodes. */
TEST(a_resize_down_ends_the_world_and_keeps_the_lowest_ranks)
{
    begin(settings(1, 3, 0), 3);
    for (int i = 0; i < 3; i++)
        sim.nodes[i].hint = 2 - i;
    join_all();
    sim_fault_at(&sim, 10000, 2, SIM_RESIZE, 1 * 1000 + 2);
    sim_run(&sim, 20000);
    assert_int_equal(sim.nodes[2].start.generation, 2);
    assert_int_equal(sim.nodes[2].start.group_world_size, 2);
    assert_int_equal(sim.nodes[2].start.group_rank, 0);
    assert_int_equal(sim.nodes[1].start.group_rank, 1);
    assert_int_equal(sim.nodes[2].start.restart_count, 0);
    assert_true(sim.nodes[0].is_spare);
}

TEST(a_resize_up_takes_the_spares_in)
{
    begin(settings(2, 2, 0), 4);
    join_all();
    sim_fault_at(&sim, 10000, 0, SIM_RESIZE, 2 * 1000 + 4);
    sim_run(&sim, 20000);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(sim.nodes[i].start.group_world_size, 4);
    assert_int_equal(sim.nodes[1].start.group_rank, 1); /* the order of ranks stays */
}

TEST(a_resize_that_changes_nothing_disturbs_nobody)
{
    begin(settings(1, 3, 0), 3);
    join_all();
    sim_fault_at(&sim, 10000, 0, SIM_RESIZE, 2 * 1000 + 5);
    sim_fault_at(&sim, 11000, 0, SIM_RESIZE, 4 * 1000 + 2); /* min above max: refused */
    sim_run(&sim, 20000);
    assert_int_equal(sim.nodes[0].starts, 1);
    assert_int_equal(sim.round->settings.max_nodes, 5);
}

TEST(a_drained_node_leaves_and_a_spare_comes)
{
    begin(settings(2, 2, 0), 3);
    for (size_t i = 0; i < 3; i++)
        sim_join_at(&sim, 1000 * i, i);
    sim_fault_at(&sim, 10000, 1, SIM_DRAIN, 0);
    sim_run(&sim, 20000);
    assert_true(sim.nodes[0].is_done);
    assert_int_equal(sim.nodes[1].start.group_world_size, 2);
    assert_int_equal(sim.nodes[2].start.generation, 2);
    assert_int_equal(sim.nodes[2].start.restart_count, 0);
}

TEST(a_drained_run_ends_everywhere)
{
    begin(settings(1, 3, 3), 3);
    join_all();
    sim_fault_at(&sim, 10000, 1, SIM_DRAIN, -1);
    sim_run(&sim, 20000);
    for (size_t i = 0; i < 3; i++)
        assert_true(sim.nodes[i].is_done && !sim.nodes[i].alive);
    assert_int_equal(sim.nodes[0].starts, 1);
}

TEST(a_restart_that_is_asked_for_keeps_ranks_and_budget)
{
    begin(settings(3, 3, 0), 3);
    join_all();
    sim_fault_at(&sim, 10000, 1, SIM_RESTART, 0);
    sim_fault_at(&sim, 30000, 2, SIM_RESTART, 0);
    sim_run(&sim, 40000);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(sim.nodes[i].starts, 3);
        assert_int_equal(sim.nodes[i].start.group_rank, i);
        assert_int_equal(sim.nodes[i].start.restart_count, 0);
        assert_int_equal(sim.nodes[i].stop.reason, CT_STOP_ASKED);
        assert_string_equal(sim.nodes[i].stop.cause.host, "n2");
    }
}

/* The server is killed when only the server, and perhaps a node or two, has the request. */
TEST(a_restart_that_was_asked_for_outlives_the_server)
{
    for (uint64_t after_ms = 0; after_ms < 200; after_ms += 5) {
        begin(settings(3, 3, 0), 3);
        join_all();
        for (size_t i = 0; i < 3; i++)
            sim.nodes[i].stops_after_ms = 100;
        sim_fault_at(&sim, 10000, 1, SIM_RESTART, 0);
        for (uint64_t ms = 10000; ms == 10000 || sim.round->state == ROUND_RUNNING;
             ms++)
            sim_run(&sim, ms); /* until the server has got the request */
        sim_fault_at(&sim, sim.now_ms + after_ms, 0, SIM_CRASH, 500);
        sim_run(&sim, 30000);
        for (size_t i = 0; i < 3; i++) {
            assert_int_equal(sim.nodes[i].starts, 2);
            assert_int_equal(sim.nodes[i].start.restart_count, 0);
            assert_int_equal(sim.nodes[i].stop.reason, CT_STOP_ASKED);
            assert_string_equal(sim.nodes[i].stop.cause.host, "n1");
        }
    }
}

TEST(worlds_have_whole_units_only)
{
    struct round_settings s = settings(2, 6, 0);

    s.node_unit = 2;
    begin(s, 5);
    for (size_t i = 0; i < 3; i++)
        sim_join_at(&sim, 10 * i, i);
    sim_join_at(&sim, 50000, 3);
    sim_join_at(&sim, 60000, 4);
    sim_run(&sim, 45000);
    assert_int_equal(sim.nodes[0].start.group_world_size, 2); /* of three nodes */
    assert_true(sim.nodes[2].is_spare);
    sim_run(&sim, 59000);
    assert_int_equal(sim.nodes[3].start.group_world_size, 4);
    sim_run(&sim, 65000);
    assert_int_equal(sim.nodes[0].start.group_world_size, 4);
    assert_int_equal(sim.nodes[0].starts, 2); /* the fifth node causes no new round */
    sim_fault_at(&sim, 70000, 1, SIM_POWER_OFF, 0);
    sim_run(&sim, 90000);
    /* instead of the lost one */
    assert_int_equal(sim.nodes[4].start.group_world_size, 4);
}

/* ---- Paused is not dead ------------------------------------------------------------------ */

TEST(a_pause_of_five_seconds_costs_no_node)
{
    begin(patient(1, 3), 3);
    join_all();
    for (uint64_t at_ms = 10000; at_ms < 60000; at_ms += 10000)
        sim_fault_at(&sim, at_ms + at_ms / 100, at_ms / 10000 % 3, SIM_PAUSE, 5000);
    sim_run(&sim, 80000);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(sim.nodes[i].starts, 1);
        assert_int_equal(sim.nodes[i].alive, 1);
    }
}

TEST(a_pause_of_the_server_for_five_seconds_costs_no_node)
{
    begin(patient(1, 3), 3);
    join_all();
    sim_fault_at(&sim, 10300, 0, SIM_PAUSE_SERVER, 5000);
    sim_fault_at(&sim, 30300, 0, SIM_PAUSE_SERVER, 12000);
    sim_run(&sim, 80000);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(sim.nodes[i].starts, 1);
}

TEST(a_node_that_stays_paused_is_lost_in_the_end)
{
    begin(patient(1, 3), 3);
    join_all();
    sim_fault_at(&sim, 10000, 1, SIM_PAUSE, 200000);
    sim_run(&sim, 39000);
    assert_int_equal(sim.nodes[0].starts, 1); /* the server still waits for it */
    sim_run(&sim, 60000);
    assert_int_equal(sim.nodes[0].starts, 2);
    assert_int_equal(sim.nodes[0].start.group_world_size, 2);
    assert_int_equal(sim.nodes[1].alive, 0); /* its guard has ended the workers */
    sim_run(&sim, 230000);
    assert_int_equal(sim.nodes[1].start.group_world_size, 3); /* not paused any more */
}

TEST(a_cut_cable_is_found_in_a_lease_in_spite_of_the_patience)
{
    begin(patient(1, 3), 3);
    join_all();
    sim_fault_at(&sim, 20000, 1, SIM_SILENCE, 60000);
    sim_run(&sim, 30000);
    assert_int_equal(sim.nodes[0].stop.reason, CT_STOP_NODE_LOST);
    assert_true(sim.last_start_ms > 23000 && sim.last_start_ms < 29000);
}

/* The paused agent cannot end its workers, and the server cannot know whether they live; the guard
 * ends them. */
TEST(a_paused_node_whose_cable_is_cut_is_fenced_by_its_guard)
{
    begin(patient(1, 3), 3);
    join_all();
    sim_fault_at(&sim, 20000, 1, SIM_PAUSE, 60000);
    sim_fault_at(&sim, 26000, 1, SIM_SILENCE, 60000);
    sim_run(&sim, 40000);
    assert_int_equal(sim.nodes[1].alive, 0);
    assert_int_equal(sim.nodes[0].start.group_world_size, 2);
    assert_true(sim.last_start_ms < 33000);
}

static void throw_faults(uint64_t until_ms)
{
    size_t faults = sim_random(&sim, 12);

    for (size_t i = 0; i < faults; i++) {
        enum sim_fault fault = (enum sim_fault)sim_random(&sim, SIM_RESTART + 1);
        int64_t code = fault == SIM_SILENCE        ? (int64_t)sim_random(&sim, 12000)
                       : fault == SIM_PAUSE        ? (int64_t)sim_random(&sim, 40000)
                       : fault == SIM_PAUSE_SERVER ? (int64_t)sim_random(&sim, 15000)
                       : fault == SIM_CRASH || fault == SIM_GAP
                           ? (int64_t)sim_random(&sim, 12000)
                       : fault == SIM_RESIZE
                           ? (int64_t)(sim_random(&sim, 4) * 1000 + sim_random(&sim, 8))
                       : fault == SIM_DRAIN
                           ? (int64_t)sim_random(&sim, 9)
                           : 3 + SIM_EARLY * (int64_t)sim_random(&sim, 2);

        if ((fault == SIM_CRASH || fault == SIM_GAP) && sim_random(&sim, 3))
            code %= 3000; /* short enough that nobody is lost */
        sim_fault_at(&sim, sim_random(&sim, until_ms), sim_random(&sim, sim.node_count),
                     fault, code);
        if (sim_random(&sim, 3) == 0) { /* a node dies, workers connected to it fail */
            uint64_t at_ms = sim_random(&sim, until_ms);

            sim_fault_at(&sim, at_ms, sim_random(&sim, sim.node_count),
                         sim_random(&sim, 2) ? SIM_POWER_OFF : SIM_BREAK, 0);
            sim_fault_at(&sim, at_ms + sim_random(&sim, 100),
                         sim_random(&sim, sim.node_count), SIM_FAIL, 1);
        }
    }
}

TEST(the_same_early_failure_ends_the_run_for_every_node)
{
    begin(settings(3, 3, 5), 3);
    join_all();
    sim_fault_at(&sim, 10000, 1, SIM_FAIL, SIM_EARLY + 3);
    sim_fault_at(&sim, 60000, 1, SIM_FAIL, SIM_EARLY + 3);
    sim_run(&sim, 200000);
    for (size_t i = 0; i < 3; i++) {
        assert_verdict(i, CT_OUTCOME_CRASH_LOOP, SIM_EARLY + 3);
        assert_int_equal(sim.nodes[i].starts, 2);
        assert_int_equal(sim.nodes[i].verdict.restart_count, 1);
    }
}

TEST(a_sick_node_makes_room_for_a_spare)
{
    begin(settings(2, 2, 5), 3);
    for (size_t i = 0; i < 3; i++)
        sim_join_at(&sim, 1000 * i, i); /* the last one is the spare */
    succeed_after(100000);
    sim_fault_at(&sim, 10000, 1, SIM_FAIL, SIM_EARLY + 3);
    sim_fault_at(&sim, 60000, 1, SIM_FAIL, SIM_EARLY + 3);
    sim_run(&sim, 400000);
    assert_int_equal(sim.nodes[1].refused, CTRUN_E_EXCLUDED);
    assert_int_equal(sim.nodes[0].starts, 3);
    assert_int_equal(sim.nodes[2].starts, 1);
    assert_verdict(0, CT_OUTCOME_SUCCEEDED, 0);
    assert_int_equal(sim.nodes[0].verdict.restart_count, 2);
}

/* One run with random settings and faults; it must end, and in the same way for every node. */
static void run_random(uint64_t seed)
{
    struct round_settings s = settings(1, 1, 0);
    uint8_t outcome = 0;

    begin_with(s, 1 + seed % 9, seed);
    s.max_nodes = 1 + (uint32_t)sim_random(&sim, sim.node_count);
    s.min_nodes = 1 + (uint32_t)sim_random(&sim, s.max_nodes);
    s.max_restarts = (uint32_t)sim_random(&sim, 4);
    if (sim_random(&sim, 8) == 0 && s.max_nodes / 2 * 2 >= s.min_nodes)
        s.node_unit = 2;
    if (sim_random(&sim, 2))
        s.pause_ms = CT_PAUSE_LEASES * s.lost_after_ms;
    sim.settings = s;
    for (size_t i = 0; i < sim.node_count; i++) {
        sim_join_at(&sim, sim_random(&sim, 20000), i);
        sim.nodes[i].slots = 1 + (uint32_t)sim_random(&sim, 8);
        sim.nodes[i].succeeds_after_ms = 1 + (int64_t)sim_random(&sim, 30000);
    }
    throw_faults(90000);
    sim_run(&sim, 3600000);
    for (size_t i = 0; i < sim.node_count; i++) {
        const struct sim_node *node = &sim.nodes[i];

        if (!node->is_done || node->alive)
            fail_msg("CTRUN_SIM_SEED=%llu: node %zu never came to an end",
                     (unsigned long long)seed, i);
        if (node->verdict.outcome && !outcome)
            outcome = node->verdict.outcome;
    }
    if (outcome == CT_OUTCOME_CLOSED ||
        (outcome == CT_OUTCOME_CRASH_LOOP && sim.failures < 2) ||
        (outcome == CT_OUTCOME_FAILED && sim.failures <= s.max_restarts))
        fail_msg("CTRUN_SIM_SEED=%llu: closed without a cause (%d)",
                 (unsigned long long)seed, outcome);
    if (sim.round || sim.event_count > 0)
        fail_msg("CTRUN_SIM_SEED=%llu: the run was not forgotten",
                 (unsigned long long)seed);
}

TEST(random_faults_never_break_an_invariant)
{
    const char *given = getenv("CTRUN_SIM_SEED");
    const char *many = getenv("CTRUN_SIM_SEEDS"); /* how many, not 5000 */
    uint64_t seed, count = 5000;

    if (given) {
        assert_int_equal(ct_parse_u64(given, 0, UINT64_MAX, &seed), 0);
        run_random(seed);
        return;
    }
    if (many)
        assert_int_equal(ct_parse_u64(many, 0, UINT64_MAX, &count), 0);
    for (seed = 1; seed <= count; seed++)
        run_random(seed);
}

int main(void)
{
    return test_run(NULL, end);
}
