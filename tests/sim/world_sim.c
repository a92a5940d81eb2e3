/* SPDX-License-Identifier: Apache-2.0 */
/* Stories of world.h: some with a name, thousands by their seed. CTRUN_SIM_SEED is the first seed,
 * CTRUN_SIM_SEEDS the number of seeds; CTRUN_SIM_TRACE prints what happens. */
#include <malloc.h>
#include <stdlib.h>

#include "agent/loop/limits.h"
#include "tests/lib/test.h"
#include "tests/sim/world.h"

enum {
    SEEDS = 10000,
    MUTANT_SEEDS = 2000,
};

static uint64_t lease_us(double leases)
{
    return (uint64_t)(leases * (double)world.lease_ms * WORLD_MS);
}

static void set(uint32_t min, uint32_t max, uint64_t lease_ms)
{
    world.min_nodes = min;
    world.max_nodes = max;
    world.lease_ms = lease_ms;
    world.last_call_ms = 500;
    world.window_ms = 12 * lease_ms + 10000;
    world.ttl_s = lease_ms < 5000 ? 1 : (int64_t)(lease_ms / 5000 * 3);
}

/* ---- By seed ----------------------------------------------------------------------------- */

static void heal(void)
{
    for (int i = 0; i <= WORLD_NODES_MAX; i++)
        for (int k = 0; k <= WORLD_NODES_MAX; k++)
            world.cut[i][k] = false;
    world.slow_ms = 0;
    world.opened_us = world.now_us;
}

static void boot_later(struct world_node *node, uint64_t after_us)
{
    world_push((struct world_event){.at_us = world.now_us + after_us,
                                    .kind = EVENT_BOOT,
                                    .node = node->index,
                                    .number = node->life});
}

static void break_something(void)
{
    const int i = (int)world_draw((uint64_t)world.node_count);
    const int k = world.has_etcd && world_draw(3) == 0
                      ? WORLD_ETCD
                      : (int)world_draw((uint64_t)world.node_count);
    struct world_node *node = &world.nodes[i];
    const uint64_t for_us = lease_us(0.05) +
                            world_draw(lease_us(world_draw(3) ? 0.8 : 3.0));
    const bool is_rank = world.survives && world_draw(2) == 0;
    const uint64_t what = world_draw(17);

    TRACE("fault %d: node%d, %d, %.1f s", (int)what, i, k, (double)for_us / 1e6);
    if (is_rank) {
        world_lose(node);
        return;
    }
    switch (what) {
    case 0:
    case 1: world.cut[i][k] = true; break;
    case 2: world.cut[k][i] = true; break;
    case 3: world.cut[i][k] = world.cut[k][i] = true; break;
    case 4:
        world.cut[i][k] = world.cut[k][i] = false;
        world.opened_us = world.now_us;
        break;
    case 5: heal(); break;
    case 6: world_stop(node, PART_AGENT, for_us); break;
    case 7: world_stop(node, PART_GUARD, for_us); break;
    case 8:
    case 9: world_stop(node, PART_HOST, for_us); break;
    case 10:
        world_power_off(node);
        boot_later(node, lease_us(0.5) + for_us);
        break;
    case 11:
        if (world_is_stopped(node, PART_GUARD))
            break;
        world_kill(node);
        boot_later(node, for_us);
        break;
    case 12: world_fail(node); break;
    case 13:
        if (world.has_etcd && world_draw(2)) {
            world.late_us = for_us;
            break;
        }
        world.slow_ms = (uint32_t)world_draw(world.lease_ms / 4);
        break;
    case 15:
        world_resize(node, 1 + (uint32_t)world_draw(world.min_nodes),
                     world.min_nodes + (uint32_t)world_draw(4));
        break;
    case 14:
        if (!world.has_etcd)
            break;
        if (world_draw(3))
            world_etcd_hurt(for_us);
        else
            world_etcd_stop(for_us / 2);
        break;
    default:
        if (!node->is_up)
            world_boot(node); /* a spare, or a node that starts late */
        break;
    }
}

static void on_fault(void *context)
{
    break_something();
    if (world.now_us < lease_us(6))
        world_push((struct world_event){.at_us = world.now_us + lease_us(0.05) +
                                                 world_draw(lease_us(0.6)),
                                        .kind = EVENT_STORY,
                                        .node = -1,
                                        .function = on_fault});
}

/* Ends all faults; everything that is stopped runs again. */
static void make_whole(void)
{
    heal();
    world.late_us = 0;
    world.is_whole = true;
    for (int i = 0; i < world.node_count; i++)
        for (int part = 0; part < PARTS; part++)
            if (world.nodes[i].is_on && world.nodes[i].stopped_us[part]) {
                world.nodes[i].resumes_us[part] = world.now_us;
                world_stop(&world.nodes[i], (enum world_part)part, 1);
            }
    for (int i = 0; i < world.etcd_members; i++)
        if (!world.nodes[i].is_on && !world.has_ha)
            world_boot(&world.nodes[i]);
    if (world.has_etcd) {
        world_etcd_heal();
        world_etcd_stop(0);
    }
}

/* No server runs, or none will: all nodes must end. */
static void fall_silent(uint64_t seed)
{
    if (world.has_etcd ? seed % 16 != 2 : seed % 8 || world_check_is_served())
        return;
    TRACE("nobody serves any more");
    if (world.has_etcd)
        world_etcd_stop(lease_us(1000));
    world_run(world.now_us + lease_us(4) +
              (world.window_ms + (world.has_etcd ? 0 : LINK_RETURN_MS)) * WORLD_MS);
    if (!world.broken)
        world_check_silent();
}

/* Returns what was wrong, or NULL. */
static const char *play(uint64_t seed, enum world_mutant mutant)
{
    static const uint64_t leases[] = {2000, 3000, 5000, 5000, 15000};
    const bool has_etcd = mutant ? mutant != MUTANT_INSTANCE_IGNORED : seed % 4 != 0;

    world_begin(seed, mutant, has_etcd, 3 + (int)(seed % 3));
    world.survives = mutant ? mutant >= MUTANT_STILL_AT_ONCE : seed % 5 == 3;
    world.replaces = world.survives && seed / 5 % 2;
    world.has_ha = has_etcd && !mutant && seed % 8 == 5;
    if (has_etcd && !mutant && !world.has_ha)
        world.etcd_members = (int[]){0, 0, 1, 3}[world_draw(4)];
    set(1 + (uint32_t)world_draw(3), 2 + (uint32_t)world_draw(4),
        leases[world_draw(sizeof leases / sizeof *leases)]);
    if (world.max_nodes < world.min_nodes)
        world.max_nodes = world.min_nodes;
    for (int i = 0; i < world.node_count; i++)
        if (i == 0 || world_draw(5))
            boot_later(&world.nodes[i], world_draw(lease_us(0.1)));
    world_push((struct world_event){.at_us = lease_us(2) + 4000 * WORLD_MS,
                                    .kind = EVENT_STORY,
                                    .node = -1,
                                    .function = on_fault});
    world_run(lease_us(8) + 4000 * WORLD_MS);
    if (!world.broken) {
        TRACE("whole again");
        make_whole();
        world_run(world.now_us + lease_us(3) +
                  (uint64_t)(8 + 2 * world.ttl_s) * 1000000);
    }
    if (!world.broken && !world.is_excused && !mutant)
        world_check_whole();
    if (!world.broken && !world.is_excused && !mutant)
        fall_silent(seed);
    world_end();
    return world.broken;
}

static void no_seed_makes_two_worlds(void **state)
{
    const char *from = getenv("CTRUN_SIM_SEED"), *many = getenv("CTRUN_SIM_SEEDS");
    const uint64_t first = from ? strtoull(from, NULL, 10) : 1;
    const uint64_t count = many ? strtoull(many, NULL, 10) : from ? 1 : SEEDS;
    uint64_t worlds = 0, elections = 0, exceptions = 0, shrinks = 0, grows = 0;

    for (uint64_t seed = first; seed < first + count; seed++) {
        const char *broken = play(seed, MUTANT_NONE);

        worlds += world.worlds;
        elections += world.elections;
        exceptions += world.exceptions;
        shrinks += world.shrinks;
        grows += world.grows;
        if (broken)
            fail_msg("%s at %.3f s: CTRUN_SIM_SEED=%llu CTRUN_SIM_TRACE=1 tells how",
                     broken, (double)world.now_us / 1e6, (unsigned long long)seed);
    }
    print_message(
        "%llu stories: %llu worlds, %llu elections, %llu times agent and guard "
        "were both stopped, %llu times a node heard who goes on, %llu ranks were taken "
        "in\n",
        (unsigned long long)count, (unsigned long long)worlds,
        (unsigned long long)elections, (unsigned long long)exceptions,
        (unsigned long long)shrinks, (unsigned long long)grows);
    assert_true(from || worlds > 2 * count); /* the stories did start worlds */
    assert_true(from || shrinks > count / 5);
    assert_true(from || grows > 0);
    assert_true(world_check_failovers() || from || many);
}

/* ---- With a name ------------------------------------------------------------------------- */

/* Starts `count` nodes that form a world; the first one has the server. */
static void go(int count, uint32_t min, uint32_t max, uint64_t lease_ms)
{
    set(min, max, lease_ms);
    world_boot(&world.nodes[0]);
    world_run(300 * WORLD_MS);
    for (int i = 1; i < count; i++)
        world_boot(&world.nodes[i]);
    world_run(lease_us(1) + 5000 * WORLD_MS);
}

static void begin(enum world_mutant mutant, bool has_etcd, int count, uint32_t min,
                  uint64_t lease_ms)
{
    world_begin(1, mutant, has_etcd, count + 1); /* the last node starts later */
    go(count, min, (uint32_t)count + 1, lease_ms);
}

static void pass(double leases)
{
    world_run(world.now_us + lease_us(leases));
}

static void cut_off(int i, bool is_cut)
{
    for (int k = 0; k <= WORLD_NODES_MAX; k++)
        world.cut[i][k] = world.cut[k][i] = is_cut && k != i;
}

/* How many nodes run workers. */
static int count_running(void)
{
    int count = 0;

    for (int i = 0; i < world.node_count; i++)
        count += world.nodes[i].live_generation > 0 &&
                 !world_is_stopped(&world.nodes[i], PART_HOST);
    return count;
}

static void assert_ended(int i)
{
    assert_true(world.nodes[i].has_ended);
    assert_int_equal(world.nodes[i].exit_code, CT_EXIT_RETRY);
}

static void end(void)
{
    const char *broken = world.broken;

    world_end();
    if (broken)
        fail_msg("%s at %.3f s", broken, (double)world.now_us / 1e6);
}

/* Each story plays to its end or until something is wrong. It asserts only without a mutant. */
static void the_founders_node_comes_back(enum world_mutant mutant)
{
    begin(mutant, false, 3, 2, 5000);
    assert_int_equal(count_running(), 3);
    world_power_off(&world.nodes[0]);
    pass(1.5);
    world_boot(&world.nodes[0]); /* by the same command; and one more node */
    world_boot(&world.nodes[3]);
    pass(3);
    cut_off(2, true);
    pass(1.6);
    cut_off(2, false);
    pass(10);
    if (mutant)
        return;
    assert_ended(1); /* their run has ended */
    assert_ended(2);
    pass(3);
    assert_int_equal(count_running(), 2); /* now, and not before, a new run starts */
}

static void the_hosts_agent_is_stopped(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 5000);
    world_stop(&world.nodes[0], PART_AGENT, lease_us(3.5));
    pass(0.2);
    world.cut[1][0] = true; /* one direction only */
    pass(2.8);
    if (!mutant)
        assert_int_equal(count_running(), 2);
    heal();
    pass(4);
    if (!mutant)
        assert_int_equal(count_running(), 3);
}

static void a_member_is_cut_off_after_the_host_has_died(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 5000);
    world_boot(&world.nodes[3]);
    pass(1);
    world_power_off(&world.nodes[0]);
    pass(4);
    if (!mutant)
        assert_int_equal(count_running(), 3);
    cut_off(2, true);
    pass(1.6);
    cut_off(2, false);
    pass(4);
    if (!mutant)
        assert_int_equal(count_running(), 3);
}

static void agent_and_guard_are_both_stopped(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 5000);
    world_stop(&world.nodes[2], PART_AGENT, lease_us(10));
    world_stop(&world.nodes[2], PART_GUARD, lease_us(10));
    pass(9); /* the server waits longer for a paused member */
    if (!mutant)
        /* the worker still lives, as the manual says */
        assert_true(world.exceptions > 0);
    pass(6);
    if (!mutant)
        assert_int_equal(count_running(), 3);
}

/* The node is cut off and its agent is stopped: only its guard ends the workers, as late as it
 * may. */
static void forget(int i)
{
    cut_off(i, true);
    world_stop(&world.nodes[i], PART_AGENT, lease_us(3));
}

/* The server starts again, with as many new nodes as it wants, while a node of the old run sends
 * nothing. */
static void start_again(enum world_mutant mutant, uint32_t max, bool is_power,
                        bool has_mark)
{
    world_begin(1, mutant, false, 4);
    go(3, 1, max, 15000);
    forget(2);
    for (int i = 0; i < 2; i++)
        (is_power ? world_power_off : world_kill)(&world.nodes[i]);
    world.nodes[0].has_mark &= has_mark;
    world_boot(&world.nodes[3]);
    pass(0.2); /* its own workers are dead */
    world_boot(&world.nodes[0]);
    world_boot(&world.nodes[1]);
    pass(2);
    if (mutant)
        return;
    /* not before those of node2 were dead */
    assert_int_equal(count_running(), 3);
    assert_int_equal(world.instances, 2);
}

static void a_server_is_killed_and_started_again(enum world_mutant mutant)
{
    start_again(mutant, 3, false, true);
}

static void a_servers_machine_is_started_again(enum world_mutant mutant)
{
    start_again(mutant, 3, true, true);
}

static void a_server_is_started_again_that_left_no_trace(enum world_mutant mutant)
{
    start_again(mutant, 4, false, false);
}

static void the_host_dies_and_returns_with_one_more_node(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 5000);
    world_power_off(&world.nodes[0]);
    pass(4);
    if (!mutant)
        assert_int_equal(count_running(), 2);
    world_boot(&world.nodes[0]);
    world_boot(&world.nodes[3]);
    pass(4);
    if (mutant)
        return;
    assert_int_equal(count_running(), 4);
    assert_int_equal(world.instances, 1);
}

static void clocks_go_wrong_while_a_long_lease_lasts(enum world_mutant mutant)
{
    world_begin(1, mutant, false, 3);
    world.nodes[0].rate = 1050000;
    world.nodes[1].rate = world.nodes[2].rate = 950000;
    go(3, 2, 3, 120000);
    forget(2);
    pass(2);
    if (!mutant)
        assert_int_equal(count_running(), 2);
}

/* An answer arrives before the agent has given it up; after that only the guard uses it. */
static void an_answer_comes_late(enum world_mutant mutant)
{
    for (int i = 0; i < 6; i++) {
        if (i > 0)
            world_end();
        begin(mutant, true, 3, 2, 15000);
        /* One direction: the node's messages arrive and are answered. */
        world.cut[0][2] = true;
        pass(0.25);
        cut_off(2, true);
        pass(0.1 + 0.05 * i);
        world.cut[0][2] = false; /* the answers arrive, for a moment */
        pass(0.15);
        forget(2);
        pass(2);
        if (world.broken)
            return;
        if (!mutant)
            assert_int_equal(count_running(), 2);
    }
}

static void a_machine_is_suspended(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 5000);
    world_stop(&world.nodes[2], PART_HOST, lease_us(4));
    pass(3.5);
    if (!mutant)
        assert_int_equal(count_running(), 2);
    pass(5);
    if (!mutant)
        assert_int_equal(count_running(), 3);
}

/* The next server is elected late, and all other nodes have reached it except one that is cut
 * off. */
static void the_host_dies_while_a_member_is_cut_off(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 15000);
    world_boot(&world.nodes[3]);
    pass(1);
    cut_off(2, true);
    world_power_off(&world.nodes[0]);
    pass(3);
    if (!mutant)
        assert_int_equal(count_running(), 2);
}

static void a_write_of_the_last_term_comes_late(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 5000);
    world.late_us = lease_us(4);
    world_fail(&world.nodes[1]); /* so that the journal is written */
    pass(0.2);
    world_power_off(&world.nodes[0]);
    pass(8);
    if (!mutant)
        assert_int_equal(count_running(), 2);
}

static void an_agent_wakes_up_shortly_before_its_deadline(enum world_mutant mutant)
{
    for (int i = 0; i < 6; i++) {
        if (i > 0)
            world_end();
        begin(mutant, true, 3, 2, 15000);
        cut_off(2, true);
        world_stop(&world.nodes[2], PART_GUARD, lease_us(3));
        world_stop(&world.nodes[2], PART_AGENT, lease_us(0.7 + 0.05 * i));
        pass(3);
        if (world.broken)
            return;
        if (!mutant)
            assert_int_equal(count_running(), 2);
    }
}

static void all_members_lose_their_server_for_long(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 5000);
    world_fail(&world.nodes[1]); /* one restart of the budget is used */
    pass(1);
    world_etcd_stop(lease_us(5));
    pass(9);
    if (mutant)
        return;
    assert_int_equal(count_running(), 3);
    assert_int_equal(world.instances, 1);
}

static void nobody_serves_any_more(enum world_mutant mutant)
{
    begin(mutant, false, 3, 2, 5000);
    world_power_off(&world.nodes[0]);
    pass(15);
    if (mutant)
        return;
    assert_ended(1);
    assert_ended(2);
    assert_int_equal(count_running(), 0);
}

/* No server is elected for as long as the others look for one, and no server comes back. */
static void none_is_elected_any_more(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 2000);
    world_etcd_stop(lease_us(100));
    world_power_off(&world.nodes[0]);
    pass((double)world.window_ms / 2000 + 5);
    if (mutant)
        return;
    assert_ended(1);
    assert_ended(2);
}

/* The workers need longer to end than the agents look for the next server; the agents do not look
 * again. */
static void a_search_ends_before_the_workers_do(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 15000);
    for (int i = 0; i < 3; i++)
        world.nodes[i].options.connect_timeout_ms = 20;
    world_etcd_stop(lease_us(100));
    world_power_off(&world.nodes[0]);
    pass(1.5); /* the lease, and the time that SIGKILL takes */
    if (mutant)
        return;
    assert_ended(1);
    assert_ended(2);
}

static void run_until(int i, enum failover_state state)
{
    const uint64_t limit_us = world.now_us + lease_us(3);

    while (world.nodes[i].agent.failover.state != state && world.now_us < limit_us)
        world_run(world.now_us + WORLD_MS);
}

/* After a suspension a server accepts the node as a new one while its workers end, which depends on
 * chance. Then its agent is stopped, and when it runs again the connection is lost and the workers
 * are gone. */
static void a_server_is_found_and_lost_again(enum world_mutant mutant)
{
    int found = 0;

    for (uint64_t seed = 1; seed <= 40 && !world.broken; seed++) {
        if (seed > 1)
            world_end();
        world_begin(seed, mutant, true, 4);
        go(3, 2, 4, 5000);
        world_stop(&world.nodes[2], PART_HOST, lease_us(1.3));
        run_until(2, FAILOVER_SEEKING);
        run_until(2, FAILOVER_FOUND);
        if (world.nodes[2].agent.failover.state == FAILOVER_FOUND) {
            world_stop(&world.nodes[2], PART_AGENT, lease_us(1.5));
            found++;
        }
        pass(6);
        if (!mutant)
            assert_int_equal(count_running(), 3);
    }
    assert_true(mutant || found > 0);
}

static void a_node_meets_nobody(enum world_mutant mutant)
{
    world_begin(1, mutant, false, 2);
    set(2, 2, 2000);
    world_boot(&world.nodes[1]);
    pass((double)world.window_ms / 2000 + 2);
    if (!mutant)
        assert_ended(1);
}

static void begin_on(enum world_mutant mutant, int etcd_members)
{
    world_begin(1, mutant, true, 4);
    world.etcd_members = etcd_members;
    go(3, 2, 4, 5000);
    if (!mutant)
        assert_int_equal(count_running(), 3);
}

static void the_only_member_of_etcd_is_started_again(enum world_mutant mutant)
{
    begin_on(mutant, 1);
    world_power_off(&world.nodes[0]);
    pass(3);
    if (!mutant)
        assert_int_equal(count_running(), 0);
    world_boot(&world.nodes[0]);
    pass(4);
    if (mutant)
        return;
    assert_int_equal(count_running(), 3);
    assert_int_equal(world.instances, 1);
}

static void a_member_of_etcd_is_lost_with_its_node(enum world_mutant mutant)
{
    begin_on(mutant, 3);
    world_power_off(&world.nodes[0]);
    pass(4);
    if (!mutant)
        assert_int_equal(count_running(), 2);
    world_power_off(&world.nodes[1]); /* one member of three is no majority */
    pass(3);
    if (!mutant)
        assert_int_equal(count_running(), 0);
    world_boot(&world.nodes[0]);
    pass(5);
    if (mutant)
        return;
    assert_int_equal(count_running(), 2);
    assert_int_equal(world.instances, 1);
}

static void a_resize_outlives_the_host(enum world_mutant mutant)
{
    begin(mutant, true, 3, 2, 5000);
    world_resize(&world.nodes[1], 2, 2);
    pass(1);
    if (!mutant)
        assert_int_equal(count_running(), 2);
    world_power_off(&world.nodes[0]);
    world_boot(&world.nodes[3]);
    pass(5);
    if (!mutant)
        assert_int_equal(count_running(), 2); /* of three nodes that run */
    world_check_whole();
}

/* Of each run one node is new, one reports the old world, and one is cut off: the daemon waits for
 * both. */
static void a_daemon_comes_back_without_its_journal(enum world_mutant mutant)
{
    world_begin(1, mutant, false, 6);
    world.has_daemon = true;
    for (int i = 3; i < 6; i++)
        world.nodes[i].run = 1;
    go(6, 1, 3, 5000);
    if (!mutant)
        assert_int_equal(count_running(), 5);
    forget(2);
    forget(4);
    for (int i = 0; i < 4; i += i ? 2 : 1) /* the daemon, a node of each run */
        world_kill(&world.nodes[i]);
    world_boot(&world.nodes[0]);
    pass(0.5);
    world_boot(&world.nodes[1]);
    world_boot(&world.nodes[3]);
    pass(4);
    if (mutant)
        return;
    assert_int_equal(count_running(), 2);
    assert_int_equal(world.instances, 4);
    assert_true(world.nodes[3].live_generation > 1); /* node5 has reported */
    pass(15);
    assert_ended(5);
}

static void begin_ha(int count, uint32_t max)
{
    world_begin(1, MUTANT_NONE, true, 5);
    world.has_ha = true;
    go(count, 1, max, 5000);
    pass(2);
    assert_int_equal(count_running(), count < (int)max ? count : (int)max);
}

/* Mutants do not need this story. */
static void a_run_with_an_etcd_of_its_own_loses_its_founder(enum world_mutant mutant)
{
    begin_ha(3, 3);
    world_power_off(&world.nodes[0]);
    pass(4);
    assert_int_equal(count_running(), 2);
    world_boot(&world.nodes[0]); /* together with as many nodes as a world needs */
    world_boot(&world.nodes[3]);
    world_boot(&world.nodes[4]);
    pass(6);
    assert_int_equal(count_running(), 3);
    assert_int_equal(world.instances, 1);
}

static void a_member_of_its_own_etcd_is_replaced(enum world_mutant mutant)
{
    begin_ha(4, 4);
    world_power_off(&world.nodes[0]);
    pass(6);
    assert_int_equal(count_running(), 3);
    world_power_off(&world.nodes[1]);
    pass(6);
    assert_int_equal(count_running(), 2);
    assert_int_equal(world.instances, 1);
}

static void more_than_half_of_its_own_etcd_is_lost(enum world_mutant mutant)
{
    begin_ha(3, 3);
    world_power_off(&world.nodes[0]);
    world_power_off(&world.nodes[1]);
    pass(15); /* a minute, and until they notice that the server is lost */
    assert_int_equal(count_running(), 0);
    assert_ended(2);
}

/* All other nodes were sent where the rendezvous is from now on; then the founder dies. */
static void a_node_that_was_not_told_asks_at_the_endpoint(enum world_mutant mutant)
{
    world_begin(1, MUTANT_NONE, true, 3);
    world.has_ha = true;
    go(2, 1, 3, 5000);
    pass(1);
    assert_int_equal(count_running(), 2);
    world_boot(&world.nodes[2]);
    while (!world_etcd_leads(&world.nodes[0]))
        pass(0.002);
    cut_off(1, true);
    pass(0.2);
    world_power_off(&world.nodes[0]);
    pass(1);
    cut_off(1, false);
    world_boot(&world.nodes[0]);
    pass(8);
    assert_int_equal(count_running(), 3);
    assert_int_equal(world.instances, 1);
}

/* In a container, which leaves no mark; with as many new nodes as a world may have. */
static void the_founder_returns_before_another_is_elected(enum world_mutant mutant)
{
    begin_ha(3, 3);
    world_kill(&world.nodes[0]);
    while (world.nodes[0].live_generation)
        pass(0.01);
    world.nodes[0].has_mark = false;
    world_boot(&world.nodes[0]);
    world_boot(&world.nodes[3]);
    world_boot(&world.nodes[4]);
    pass(0.3);
    assert_true(world_serves(&world.nodes[0]) && world.nodes[0].dispatch->is_candidate);
    pass(8);
    assert_int_equal(count_running(), 3);
    assert_int_equal(world.instances, 1);
}

/* The spare has no workers, and the founder's new server accepts it as a new node. */
static void a_spare_tells_that_the_run_lives(enum world_mutant mutant)
{
    begin_ha(3, 2);
    world_stop(&world.nodes[world.nodes[1].live_generation ? 1 : 2], PART_AGENT,
               lease_us(4));
    world_power_off(&world.nodes[0]);
    pass(0.8); /* etcd still has the old server as leader */
    world_boot(&world.nodes[0]);
    pass(8);
    assert_int_equal(count_running(), 2);
    assert_int_equal(world.instances, 1);
}

/* The founder's new server plans an etcd, too, with a spare of the run that lives. */
static void a_plan_that_came_to_nothing_is_not_followed(enum world_mutant mutant)
{
    begin_ha(3, 2);
    world_stop(&world.nodes[world.nodes[1].live_generation ? 1 : 2], PART_AGENT,
               lease_us(3));
    world.mute_until_us = world.now_us + lease_us(1.2);
    world_power_off(&world.nodes[0]);
    pass(0.8);
    world_boot(&world.nodes[0]);
    world_boot(&world.nodes[4]);
    pass(8);
    world_power_off(&world.nodes[4]);
    world_boot(&world.nodes[4]); /* it asks at the endpoint */
    pass(4);
    world_check_whole();
    assert_non_null(world.nodes[4].agent.link);
    assert_int_equal(world.nodes[4].agent.state, AGENT_JOINING); /* a spare */
    assert_int_equal(world.instances, 1);
}

/* The founder's server leads from the start, and no other was elected before it. */
static void a_founder_keeps_a_run_that_all_have_left(enum world_mutant mutant)
{
    begin_ha(3, 3);
    world_etcd_stop(lease_us(1.5)); /* no heartbeat is acknowledged */
    cut_off(1, true);
    cut_off(2, true);
    /* longer than its own agent waits for a connection */
    world.slow_ms = 5000;
    pass(7); /* the server waits longer for paused members */
    assert_int_equal(count_running(), 0);
    world_boot(&world.nodes[3]); /* a new node joins first */
    pass(3);
    heal();
    pass(8);
    assert_int_equal(count_running(), 3);
    assert_int_equal(world.instances, 1);
}

static void begin_ranks_of(enum world_mutant mutant, uint32_t min_nodes)
{
    world_begin(1, mutant, true, 4);
    world.survives = true;
    go(3, min_nodes, 3, 5000);
    if (!mutant)
        assert_int_equal(world_count_ranks(), 9);
}

static void begin_ranks(enum world_mutant mutant)
{
    begin_ranks_of(mutant, 3);
}

static void assert_shrunk(enum world_mutant mutant, int ranks)
{
    if (mutant)
        return;
    assert_int_equal(world_count_ranks(), ranks);
    assert_int_equal(world.worlds, 1);
    world_check_whole();
}

static void ranks_of_two_nodes_are_lost_at_once(enum world_mutant mutant)
{
    begin_ranks(mutant);
    world_lose(&world.nodes[1]);
    world_lose(&world.nodes[2]);
    pass(1);
    assert_shrunk(mutant, 7);
    world_lose(&world.nodes[0]);
    pass(1);
    assert_shrunk(mutant, 6);
}

static void a_rank_is_lost_while_its_node_is_cut_off(enum world_mutant mutant)
{
    begin_ranks(mutant);
    cut_off(2, true);
    world_lose(&world.nodes[2]);
    pass(0.15);
    cut_off(2, false);
    pass(2);
    assert_shrunk(mutant, 8);
}

/* At each moment of the decision: the next server knows what was sent. */
static void the_host_dies_while_it_is_decided_who_goes_on(enum world_mutant mutant)
{
    for (uint64_t ms = 20; ms < 2000 && !world.broken; ms += 60) {
        if (ms > 20)
            world_end();
        begin_ranks(mutant);
        world_lose(&world.nodes[1]);
        world_run(world.now_us + ms * WORLD_MS);
        world_kill(&world.nodes[0]);
        pass(5);
        world_boot(&world.nodes[0]);
        pass(6);
        if (!mutant)
            world_check_whole();
    }
}

/* Its ranks may live until its deadline; the others continue after that. When it is back, all start
 * again. */
static void a_node_is_lost_and_those_of_others_go_on(enum world_mutant mutant)
{
    begin_ranks_of(mutant, 2);
    cut_off(2, true);
    pass(2.5);
    if (!mutant)
        assert_int_equal(world_count_ranks(), 6);
    cut_off(2, false);
    pass(4);
    if (mutant)
        return;
    assert_int_equal(world_count_ranks(), 9);
    assert_int_equal(world.worlds, 2);
    world_check_whole();
}

static void a_node_and_a_rank_of_another_are_lost(enum world_mutant mutant)
{
    begin_ranks_of(mutant, 1);
    world_power_off(&world.nodes[1]);
    pass(1.2);
    world_lose(&world.nodes[0]);
    pass(1.5);
    assert_shrunk(mutant, 5);
    world_power_off(&world.nodes[2]);
    pass(2.5);
    assert_shrunk(mutant, 2);
}

static void begin_ranks_to_replace(enum world_mutant mutant)
{
    world_begin(1, mutant, true, 5);
    world.survives = world.replaces = true;
    go(3, 1, 3, 5000);
}

static void assert_grown(enum world_mutant mutant, uint32_t grows)
{
    if (mutant)
        return;
    assert_int_equal(world_count_ranks(), 9);
    assert_int_equal(world.worlds, 1);
    assert_int_equal(world.grows, grows);
    world_check_whole();
}

/* Another node takes its place, then the lost node itself; no other node starts again. */
static void a_node_takes_the_place_of_a_lost_one(enum world_mutant mutant)
{
    begin_ranks_to_replace(mutant);
    world_power_off(&world.nodes[2]);
    pass(2.5);
    if (!mutant)
        assert_int_equal(world_count_ranks(), 6);
    world_boot(&world.nodes[3]);
    pass(1.5);
    assert_grown(mutant, 3);
    cut_off(1, true);
    pass(2.5);
    cut_off(1, false);
    pass(3);
    assert_grown(mutant, 6);
}

/* At every stage, in some cases together with the node of the server. Its ranks are in no world, or
 * may be in one. */
static void it_is_lost_while_it_takes_the_place(enum world_mutant mutant)
{
    for (uint64_t ms = 20; ms < 2000 && !world.broken; ms += 90) {
        if (ms > 20)
            world_end();
        begin_ranks_to_replace(mutant);
        world_power_off(&world.nodes[2]);
        pass(2.5);
        world_boot(&world.nodes[3]);
        world_run(world.now_us + ms * WORLD_MS);
        world_power_off(&world.nodes[3]);
        if (ms / 90 % 3 == 0)
            world_kill(&world.nodes[0]);
        pass(3);
        world_boot(&world.nodes[4]);
        world_boot(&world.nodes[0]);
        pass(5);
        if (!mutant)
            world_check_whole();
    }
}

/* As without --survive: the others wait for this node or another one. */
static void too_few_nodes_are_left_to_go_on(enum world_mutant mutant)
{
    begin_ranks(mutant);
    world_power_off(&world.nodes[2]);
    pass(2);
    if (!mutant)
        assert_int_equal(world_count_ranks(), 0);
    world_boot(&world.nodes[3]);
    pass(2);
    if (mutant)
        return;
    assert_int_equal(world_count_ranks(), 9);
    assert_int_equal(world.worlds, 2);
}

typedef void story_fn(enum world_mutant mutant);

static story_fn *const stories[] = {
    the_founders_node_comes_back,
    the_hosts_agent_is_stopped,
    a_member_is_cut_off_after_the_host_has_died,
    agent_and_guard_are_both_stopped,
    a_server_is_killed_and_started_again,
    a_servers_machine_is_started_again,
    a_server_is_started_again_that_left_no_trace,
    the_host_dies_and_returns_with_one_more_node,
    clocks_go_wrong_while_a_long_lease_lasts,
    an_answer_comes_late,
    a_machine_is_suspended,
    the_host_dies_while_a_member_is_cut_off,
    all_members_lose_their_server_for_long,
    nobody_serves_any_more,
    a_write_of_the_last_term_comes_late,
    an_agent_wakes_up_shortly_before_its_deadline,
    none_is_elected_any_more,
    a_node_meets_nobody,
    the_only_member_of_etcd_is_started_again,
    a_member_of_etcd_is_lost_with_its_node,
    a_resize_outlives_the_host,
    a_daemon_comes_back_without_its_journal,
    a_run_with_an_etcd_of_its_own_loses_its_founder,
    a_member_of_its_own_etcd_is_replaced,
    more_than_half_of_its_own_etcd_is_lost,
    a_node_that_was_not_told_asks_at_the_endpoint,
    a_spare_tells_that_the_run_lives,
    a_founder_keeps_a_run_that_all_have_left,
    a_plan_that_came_to_nothing_is_not_followed,
    a_search_ends_before_the_workers_do,
    the_founder_returns_before_another_is_elected,
    a_server_is_found_and_lost_again,
    ranks_of_two_nodes_are_lost_at_once,
    a_rank_is_lost_while_its_node_is_cut_off,
    the_host_dies_while_it_is_decided_who_goes_on,
    a_node_is_lost_and_those_of_others_go_on,
    a_node_and_a_rank_of_another_are_lost,
    too_few_nodes_are_left_to_go_on,
    a_node_takes_the_place_of_a_lost_one,
    it_is_lost_while_it_takes_the_place,
};

enum {
    STORIES = sizeof stories / sizeof *stories
};

static void play_story(void **state)
{
    const size_t i = (size_t)(uintptr_t)*state;

    stories[i](MUTANT_NONE);
    end();
}

/* Plays the stories in order, then seeds, until one of them detects the mutant. */
static void each_mutant_is_found(void **state)
{
    for (int mutant = MUTANT_NONE + 1; mutant < MUTANTS; mutant++) {
        const char *broken = NULL;
        uint64_t i = 0;

        for (; i < STORIES && !broken; i++) {
            stories[i]((enum world_mutant)mutant);
            broken = world.broken;
            world_end();
        }
        for (; i < STORIES + MUTANT_SEEDS && !broken; i++)
            broken = play(i - STORIES + 1, (enum world_mutant)mutant);
        print_message("mutant %d: %s %llu: %s\n", mutant,
                      i <= STORIES ? "story" : "seed",
                      (unsigned long long)(i <= STORIES ? i : i - STORIES),
                      broken ? broken : "not found");
        assert_non_null(broken);
    }
}

static void log_line(void *context, enum ctrun_log_level level, const char *line)
{
    (void)level, (void)context;
    world_trace("  node%d | %s", world.current ? world.current->index : -1, line);
}

int main(void)
{
#define STORY(number, name)                                                            \
    {                                                                                  \
#name, play_story, NULL, NULL, (void *)(uintptr_t)(number)                     \
    }
    const struct CMUnitTest tests[] = {
        STORY(0, the_founders_node_comes_back),
        STORY(1, the_hosts_agent_is_stopped),
        STORY(2, a_member_is_cut_off_after_the_host_has_died),
        STORY(3, agent_and_guard_are_both_stopped),
        STORY(4, a_server_is_killed_and_started_again),
        STORY(5, a_servers_machine_is_started_again),
        STORY(6, a_server_is_started_again_that_left_no_trace),
        STORY(7, the_host_dies_and_returns_with_one_more_node),
        STORY(8, clocks_go_wrong_while_a_long_lease_lasts),
        STORY(9, an_answer_comes_late),
        STORY(10, a_machine_is_suspended),
        STORY(11, the_host_dies_while_a_member_is_cut_off),
        STORY(12, all_members_lose_their_server_for_long),
        STORY(13, nobody_serves_any_more),
        STORY(14, a_write_of_the_last_term_comes_late),
        STORY(15, an_agent_wakes_up_shortly_before_its_deadline),
        STORY(16, none_is_elected_any_more),
        STORY(17, a_node_meets_nobody),
        STORY(18, the_only_member_of_etcd_is_started_again),
        STORY(19, a_member_of_etcd_is_lost_with_its_node),
        STORY(20, a_resize_outlives_the_host),
        STORY(21, a_daemon_comes_back_without_its_journal),
        STORY(22, a_run_with_an_etcd_of_its_own_loses_its_founder),
        STORY(23, a_member_of_its_own_etcd_is_replaced),
        STORY(24, more_than_half_of_its_own_etcd_is_lost),
        STORY(25, a_node_that_was_not_told_asks_at_the_endpoint),
        STORY(26, a_spare_tells_that_the_run_lives),
        STORY(27, a_founder_keeps_a_run_that_all_have_left),
        STORY(28, a_plan_that_came_to_nothing_is_not_followed),
        STORY(29, a_search_ends_before_the_workers_do),
        STORY(30, the_founder_returns_before_another_is_elected),
        STORY(31, a_server_is_found_and_lost_again),
        STORY(32, ranks_of_two_nodes_are_lost_at_once),
        STORY(33, a_rank_is_lost_while_its_node_is_cut_off),
        STORY(34, the_host_dies_while_it_is_decided_who_goes_on),
        STORY(35, a_node_is_lost_and_those_of_others_go_on),
        STORY(36, a_node_and_a_rank_of_another_are_lost),
        STORY(37, too_few_nodes_are_left_to_go_on),
        STORY(38, a_node_takes_the_place_of_a_lost_one),
        STORY(39, it_is_lost_while_it_takes_the_place),
        cmocka_unit_test(each_mutant_is_found),
        cmocka_unit_test(no_seed_makes_two_worlds),
    };
    const struct CMUnitTest by_seed[] = {cmocka_unit_test(no_seed_makes_two_worlds)};

    if (getenv("CTRUN_SIM_LOG"))
        ct_log_set_sink(log_line, NULL, CTRUN_LOG_DEBUG);
    /* Rounds are large, and there are many. */
    (void)mallopt(M_MMAP_THRESHOLD, 16 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 64 << 20);
    return getenv("CTRUN_SIM_SEED") ? cmocka_run_group_tests(by_seed, NULL, NULL)
                                    : cmocka_run_group_tests(tests, NULL, NULL);
}
