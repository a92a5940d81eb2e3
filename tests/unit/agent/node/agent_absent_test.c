/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that have not connected to the worker store, at looks that the test makes: what a node of three workers sees of
 * them, and what the node of group rank 0 makes of its own and of what other nodes send. */
#include "agent/loop/limits.h"
#include "agent/node/agent_private.h"
#include "agent/process/reap.h"
#include "agent/worker/worker.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/small_file.h"

enum {
    WORKERS = 3,
    PORT = 29500
};

/* ---- The node ------------------------------------------------------------------------------- */

static struct agent agent;
static struct agent_options options;
static struct worker workers[WORKERS];
static bool are_connected[WORKERS];
static uint64_t ticks[WORKERS]; /* of 10 ms, used until now */
static uint64_t counted;        /* in the store */
static int counts;              /* how often it was asked for */
static int scans;               /* of the processes */
static bool is_due;             /* the timer is set, */
static uint64_t pause_ms;       /* and was set to that the last time */
static loop_timer_fn *fire;
static int reports;
static struct agent_absent reported; /* the last one */
static struct ct_absent sent;        /* the last one, */
static int sends;                    /* of so many */

struct loop_timer *__wrap_loop_timer_open(struct loop *loop, loop_timer_fn *fn,
                                          void *context);
void __wrap_loop_timer_set(struct loop_timer *timer, uint64_t delay_ms);
void __wrap_loop_timer_close(struct loop_timer *timer);
int __wrap_worker_group_count(const struct worker_group *group);
const struct worker *__wrap_worker_group_worker(const struct worker_group *group,
                                                int i);
int __wrap_reap_scan(const struct reap_keep *keep, reap_visit_fn *visit, void *context);
uint64_t __wrap_ct_small_file_ticks(pid_t pid);
void __wrap_peer_sockets_add(struct peer_sockets *sockets, int rank, pid_t pid,
                             bool is_cut);
int __wrap_peer_sockets_count(const struct peer_sockets *sockets, uint16_t port);
void __wrap_link_send(struct link *link, const struct ct_message *message);

struct loop_timer *__wrap_loop_timer_open(struct loop *loop, loop_timer_fn *fn,
                                          void *context)
{
    fire = fn;
    return (struct loop_timer *)&fire;
}

void __wrap_loop_timer_set(struct loop_timer *timer, uint64_t delay_ms)
{
    is_due = true;
    pause_ms = delay_ms;
}

void __wrap_loop_timer_close(struct loop_timer *timer)
{
}

int __wrap_worker_group_count(const struct worker_group *group)
{
    return WORKERS;
}

const struct worker *__wrap_worker_group_worker(const struct worker_group *group, int i)
{
    return &workers[i];
}

int __wrap_reap_scan(const struct reap_keep *keep, reap_visit_fn *visit, void *context)
{
    scans++;
    for (int i = 0; i < WORKERS; i++)
        visit(context,
              &(struct reap_process){.pid = workers[i].pid, .session = workers[i].pid});
    return WORKERS;
}

uint64_t __wrap_ct_small_file_ticks(pid_t pid)
{
    return ticks[pid - 100];
}

static int asked; /* the worker whose connections are counted */

void __wrap_peer_sockets_add(struct peer_sockets *sockets, int rank, pid_t pid,
                             bool is_cut)
{
    assert_int_equal(workers[rank].pid, pid);
    asked = rank;
}

int __wrap_peer_sockets_count(const struct peer_sockets *sockets, uint16_t port)
{
    assert_int_equal(port, PORT);
    return are_connected[asked];
}

void __wrap_link_send(struct link *link, const struct ct_message *message)
{
    assert_int_equal(message->kind, CT_MESSAGE_ABSENT);
    sent = *message->absent;
    sends++;
}

static void look_at_store(void *context, uint64_t store, const pid_t *pids, int count,
                          struct agent_store_marks *out)
{
    counts++;
    *out = (struct agent_store_marks){.ranks = counted, .last = -1};
}

static void on_absent(void *context, const struct agent_absent *absent)
{
    reports++;
    reported = *absent;
}

/* A round of `nodes` nodes with WORKERS ranks each, in which one role has all ranks. */
static void begin_round(uint32_t group_rank, uint32_t nodes)
{
    agent.state = AGENT_RUNNING;
    agent.start = (struct ct_start){.generation = 7,
                                    .group_rank = group_rank,
                                    .group_world_size = nodes,
                                    .world_size = nodes * WORKERS,
                                    .role_world_size = nodes * WORKERS,
                                    .master_port = PORT};
    for (int i = 0; i < WORKERS; i++)
        workers[i] = (struct worker){.state = WORKER_RUNNING,
                                     .pid = 100 + i,
                                     .rank = (int)group_rank * WORKERS + i};
    agent_start_absent(&agent);
}

static int open_node(void **state)
{
    struct ctrun_error err;

    options = (struct agent_options){.absent_ms = AGENT_ABSENT_MS,
                                     .look_at_store = look_at_store,
                                     .on_absent = on_absent,
                                     .hello.host = "here"};
    agent = (struct agent){.options = &options, .has_store = true};
    memset(are_connected, 0, sizeof are_connected);
    memset(ticks, 0, sizeof ticks);
    counted = 0;
    counts = scans = reports = sends = 0;
    is_due = false;
    return agent_open_absent(&agent, &err);
}

static int close_node(void **state)
{
    agent_close_absent(&agent);
    return 0;
}

#define NODE_TEST(name) TEST_AROUND(name, open_node, close_node)

/* False: nobody looks any more. */
static bool look(void)
{
    if (!is_due)
        return false;
    is_due = false;
    fire(agent.absent);
    return true;
}

static void look_often(int times)
{
    for (int i = 0; i < times; i++)
        assert_true(look());
}

static void receive(uint32_t node, uint32_t count, int rank)
{
    struct ct_absent absent = {.generation = 7, .node = node, .count = count};

    (void)ct_format(absent.host, sizeof absent.host, "n%u", node);
    if (count > 0)
        (void)ct_format(absent.ranks, sizeof absent.ranks, "%d", rank);
    agent_on_absent(&agent, &absent);
}

/* ---- Which worlds --------------------------------------------------------------------------- */

NODE_TEST(in_a_world_of_several_roles_nobody_looks)
{
    begin_round(0, 2);
    assert_true(is_due);
    is_due = false;
    agent.start.role_world_size = 2;
    agent_start_absent(&agent);
    assert_false(is_due);
    agent.start.world_size = agent.start.role_world_size = 1;
    agent_start_absent(&agent);
    assert_false(is_due); /* nor for the only rank */
}

NODE_TEST(another_node_sends_its_global_ranks_until_all_are_connected)
{
    begin_round(2, 3);
    are_connected[1] = true;
    look_often(2);
    assert_int_equal(sends,
                     0); /* two in a row say who uses the CPU, but for the start */
    look_often(1);
    assert_int_equal(sends, 1);
    assert_int_equal(sent.node, 2);
    assert_int_equal(sent.count, 2);
    assert_string_equal(sent.ranks, "6, 8");
    assert_string_equal(sent.host, "here");
    are_connected[0] = are_connected[2] = true;
    look_often(1);
    assert_int_equal(sent.count, 0); /* is taken back */
    assert_int_equal(sends, 2);
    assert_false(is_due);
    assert_int_equal(reports, 0);
    assert_int_equal(counts, 0); /* its store is not that of the round */
}

NODE_TEST(a_rank_that_uses_the_cpu_is_named_after_a_minute)
{
    begin_round(1, 2);
    are_connected[0] = are_connected[1] = true;
    for (int i = 0; i < AGENT_ABSENT_FIRST_LOOKS + 1; i++) {
        ticks[2] += AGENT_ABSENT_MS / 10;
        look_often(1);
    }
    assert_int_equal(sends, 0);
    ticks[2] += AGENT_ABSENT_MS / 10;
    look_often(1);
    assert_string_equal(sent.ranks, "5");
}

/* As with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: tests/unit/launcher/run/launch_stores_test.c. */
NODE_TEST(of_a_store_that_is_not_ctruns_nothing_is_reported)
{
    for (int i = 0; i < 2; i++) {
        begin_round(0, 2);
        receive(1, 1, 4);
        if (i > 0) {
            agent.has_store = false;
            counted = 5; /* in another one */
        }
        for (int looks = 0; looks < AGENT_ABSENT_LOOKS; looks++)
            look_often(1);
        assert_int_equal(reports, 0);
        assert_null(agent_absent(&agent));
    }
    assert_true(counts > 0);
    assert_int_equal(scans, 0);
}

/* ---- What is counted ------------------------------------------------------------------------ */

/* Those of earlier rounds stay in the store that the endpoint of the static backend has. */
NODE_TEST(ranks_of_earlier_rounds_in_the_same_store_do_not_count)
{
    are_connected[0] = are_connected[1] = true;
    counted = 3;
    begin_round(0, 1);
    look_often(3);
    assert_int_equal(reports, 0); /* none has come in this round */
    counted = 5;
    look_often(3);
    assert_int_equal(reported.connected, 2);
    assert_int_equal(reported.world_size, 3);
    assert_string_equal(reported.text, "rank 2 (here)");
}

NODE_TEST(a_store_that_has_begun_anew_is_counted_from_its_beginning)
{
    are_connected[0] = are_connected[1] = true;
    counted = 3;
    begin_round(0, 1);
    counted = 2;
    look_often(3);
    assert_int_equal(reported.connected, 2);
    assert_int_equal(reports, 1);
}

NODE_TEST(nothing_is_reported_while_ranks_still_come)
{
    begin_round(0, 2);
    for (counted = 1; counted < 6; counted++)
        look_often(2); /* the first one sees a further rank */
    assert_int_equal(reports, 0);
    look_often(1);
    assert_false(is_due); /* all are there */
    assert_int_equal(reports, 0);
}

NODE_TEST(a_report_is_made_once_and_shown_until_the_ranks_have_come)
{
    begin_round(0, 1);
    are_connected[0] = are_connected[1] = true;
    counted = 2;
    look_often(3);
    assert_non_null(agent_absent(&agent));
    look_often(2);
    assert_int_equal(reports, 1);
    agent.stop.reason = 1;
    assert_null(agent_absent(&agent)); /* the round ends */
    agent.stop.reason = 0;
    counted = 3;
    look_often(1);
    assert_null(agent_absent(&agent));
    assert_false(is_due);
}

/* ---- Who is named --------------------------------------------------------------------------- */

NODE_TEST(ranks_of_which_no_node_knows_are_counted_after_a_minute)
{
    begin_round(0, 2);
    are_connected[0] = are_connected[1] = are_connected[2] = true;
    counted = 4;
    look_often(1 + AGENT_ABSENT_FIRST_LOOKS);
    assert_int_equal(reports, 0);
    look_often(1);
    assert_int_equal(reports, 1);
    assert_string_equal(reported.text, "2 (not known which)");
    assert_int_equal(reported.connected, 4);
}

/* Processes that have connected and closed the connection again, say. */
NODE_TEST(where_more_ranks_are_named_than_are_missing_none_is)
{
    begin_round(0, 2);
    are_connected[0] = are_connected[1] = true;
    receive(1, 1, 4);
    counted = 5;
    look_often(1 + AGENT_ABSENT_FIRST_LOOKS);
    assert_int_equal(reports, 0);
    look_often(1);
    assert_string_equal(reported.text, "1 (not known which)");
}

NODE_TEST(
    ranks_of_more_nodes_than_are_kept_are_counted_and_come_in_when_others_have_connected)
{
    const uint32_t nodes = AGENT_ABSENT_NODES_MAX + 8;

    begin_round(0, nodes);
    are_connected[0] = are_connected[1] = are_connected[2] = true;
    for (uint32_t node = 1; node < nodes; node++)
        receive(node, 1, 10 + (int)node);
    counted = nodes * WORKERS - (nodes - 1);
    look_often(3);
    assert_true(ct_starts_with(reported.text, /* the place of its own ranks is free */
                               "rank 42 (n32), rank 11 (n1), rank 12 (n2), "));
    assert_non_null(strstr(reported.text, ", rank 41 (n31) and 7 more"));
    assert_null(strstr(reported.text, "n33"));

    receive(5, 0, 0); /* its rank has connected, */
    receive(nodes - 1, 1, 49);
    counted++;
    look_often(3);
    assert_null(strstr(agent_absent(&agent)->text, "(n5)"));
    assert_non_null(
        strstr(agent_absent(&agent)->text, "(n4), rank 49 (n39), rank 16 (n6)"));
    assert_non_null(strstr(agent_absent(&agent)->text, " and 6 more"));
    assert_int_equal(reports, 1);
}

NODE_TEST(what_a_node_sends_for_another_round_or_to_another_node_is_not_taken)
{
    begin_round(0, 2);
    are_connected[0] = are_connected[1] = are_connected[2] = true;
    counted = 5;
    agent_on_absent(
        &agent,
        &(struct ct_absent){
            .generation = 6, .node = 1, .host = "n1", .count = 1, .ranks = "4"});
    agent.start.group_rank = 1;
    receive(1, 1, 4);
    agent.start.group_rank = 0;
    look_often(3);
    assert_int_equal(reports, 0);
    receive(1, 1, 4);
    look_often(1);
    assert_string_equal(reported.text, "rank 4 (n1)");
}

/* ---- The end -------------------------------------------------------------------------------- */

NODE_TEST(after_the_last_look_nothing_is_shown_any_more)
{
    int looks = 1;

    begin_round(0, 1);
    are_connected[0] = are_connected[1] = true;
    counted = 2;
    assert_int_equal(pause_ms, AGENT_ABSENT_MS / 2);
    for (; looks < AGENT_ABSENT_LOOKS; looks++) {
        look_often(1);
        assert_int_equal(pause_ms, AGENT_ABSENT_MS *
                                       (looks < AGENT_ABSENT_FIRST_LOOKS ? 1 : 12) / 2);
    }
    assert_non_null(agent_absent(&agent));
    look_often(1);
    assert_false(is_due);
    assert_null(agent_absent(&agent));
    assert_int_equal(reports, 1);
}

NODE_TEST(while_workers_are_stopped_nobody_looks)
{
    begin_round(0, 1);
    agent.state = AGENT_STOPPING;
    look_often(1);
    assert_false(is_due);
}
