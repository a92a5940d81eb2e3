/* SPDX-License-Identifier: Apache-2.0 */
/* --stragglers over several nodes: the node that the others wait for.
 *
 *     each node, at each of its looks            the calls of all its ranks (node_calls.h), by the server's clock
 *                                                (clock_offset.h) ── CALLS ──> the agent of group rank 0
 *     group rank 0, at each of its looks         the nodes as if each were a rank (straggler.h) ──> who is late ──>
 *                                                ctrunctl status, an event
 *
 * A node is reported only if it is later than the clocks' error can explain. Nodes that send nothing are not compared. */
#include <errno.h>
#include <time.h>

#include "agent/hang/agent_slow_node.h"
#include "agent/loop/limits.h"
#include "agent/watch/clock_offset.h"
#include "agent/watch/node_calls.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    NODES_MAX = 256,
    SENT_MAX = 4 * CT_CALLS_MAX, /* of one look */
    KEPT_MAX =
        2 * STRAGGLER_CALLS_MAX /* of a node; at this count the older half is dropped */
};

/* What group rank 0 knows of one node. */
struct slow_node {
    char host[CT_HOST_MAX];
    int rank;
    uint64_t doubt_ns;
    int count;
    struct straggler_call *calls; /* [KEPT_MAX]; NULL: it has sent none */
};

/* `calls` and `message` are buffers of one look. */
struct slow_node_watch {
    struct agent *agent;
    struct loop_timer *timer; /* for the next clock question */
    struct clock_offset clock;
    struct node_calls sent;
    struct straggler_call calls[SENT_MAX];
    struct ct_calls message;

    /* Used by group rank 0 only. */
    int count; /* nodes; 0: they are not compared here */
    struct slow_node *nodes;
    struct rank_rates *rates;
    struct straggler *straggler;
    struct straggler_report report;
    struct ct_metrics metrics;
    uint64_t sent_ms; /* when `metrics` were sent */
};

/* ---- What is reported -------------------------------------------------------------------- */

static void emit(const struct slow_node_watch *watch, const char *name)
{
    const struct straggler_report *report = &watch->report;

    ct_event_emit(
        name, CT_INT("generation", watch->agent->start.generation),
        CT_INT("node", report->found.rank), CT_STR("host", report->host),
        CT_INT("rank", report->rank), CT_INT("late_us", report->found.late_ns / 1000),
        CT_INT("late_permille", report->found.share * 1000),
        CT_INT("steps", report->found.steps), CT_STR("differs", report->differs));
}

/* How far two nodes' clocks may differ: the doubt of this node, and the largest of the others. */
static uint64_t find_doubt_ns(const struct slow_node_watch *watch, int node)
{
    uint64_t worst_ns = 0;

    for (int i = 0; i < watch->count; i++)
        if (i != node && watch->nodes[i].doubt_ns > worst_ns)
            worst_ns = watch->nodes[i].doubt_ns;
    return worst_ns + watch->nodes[node].doubt_ns;
}

static void report(struct slow_node_watch *watch, const struct lateness *found)
{
    const struct slow_node *node = &watch->nodes[found->rank];
    const bool is_new = !watch->report.is_set ||
                        watch->report.found.rank != found->rank;

    watch->report = (struct straggler_report){
        .is_set = true, .rank = node->rank, .found = *found};
    (void)ct_copy(watch->report.host, sizeof watch->report.host,
                  node->host); /* same size */
    rank_load_differs(watch->report.differs, watch->rates, watch->count, found->rank);
    if (is_new)
        emit(watch, "straggler_node");
}

static void send_metrics(struct slow_node_watch *watch)
{
    struct ct_metrics *metrics = &watch->metrics;
    double late_ns;

    if (ct_now_ms() - watch->sent_ms < AGENT_METRICS_MS)
        return;
    watch->sent_ms = ct_now_ms();
    metrics->generation = watch->agent->start.generation;
    metrics->count = 0;
    for (int i = 0; i < watch->count && metrics->count < CT_METRICS_SENT_MAX; i++) {
        struct ct_metric_sent *sent = &metrics->list[metrics->count];

        if (!straggler_late_ns(watch->straggler, i, &late_ns))
            continue;
        *sent = (struct ct_metric_sent){.rank = i,
                                        .name = CT_METRIC_NODE_LATE,
                                        .bits = ct_metric_to_bits(late_ns / 1e9)};
        metrics->count++;
    }
    link_send(watch->agent->link,
              &(struct ct_message){CT_MESSAGE_METRICS, .metrics = metrics});
}

static void judge(struct slow_node_watch *watch)
{
    struct lateness found;
    int rc;

    for (int i = 0; i < watch->count; i++)
        (void)straggler_give(watch->straggler, i, watch->nodes[i].calls,
                             watch->nodes[i].count);
    if (straggler_take(watch->straggler) <= 0 ||
        (rc = straggler_find(watch->straggler, &found)) < 0)
        return;
    send_metrics(watch);
    if ((rc > 0 && found.late_ns > (double)find_doubt_ns(watch, found.rank)) ||
        straggler_stays(&watch->report, &found)) {
        report(watch, &found);
    } else if (watch->report.is_set) {
        emit(watch, "straggler_node_over");
        watch->report.is_set = false;
    }
}

const struct straggler_report *agent_slow_node(const struct agent *agent)
{
    return agent->slow_node && agent->slow_node->report.is_set
               ? &agent->slow_node->report
               : NULL;
}

/* ---- Group rank 0 ------------------------------------------------------------------------ */

static bool make_room(struct slow_node *node, int count)
{
    if (!node->calls && !(node->calls = ct_zalloc_array(KEPT_MAX, sizeof *node->calls)))
        return false;
    if (node->count + count > KEPT_MAX) {
        const int left = KEPT_MAX / 2;

        memmove(node->calls, node->calls + (node->count - left),
                (size_t)left * sizeof *node->calls);
        node->count = left;
    }
    return true;
}

/* The caller has checked that message->node is below watch->count. */
static void take(struct slow_node_watch *watch, const struct ct_calls *message)
{
    struct slow_node *node = &watch->nodes[message->node];

    if (!make_room(node, message->count))
        return; /* this node is not compared then */
    (void)ct_copy(node->host, sizeof node->host, message->host); /* same size */
    node->rank = message->rank;
    node->doubt_ns = message->doubt_ns;
    watch->rates[message->node] = (struct rank_rates){
        .wait = message->wait_permille / 1000.0,
        .steal = message->steal_permille / 1000.0,
        .faults = message->faults,
        .resent = message->resent,
        .mhz = message->mhz,
        .gpu = {.mhz = message->gpu_mhz,
                .max_mhz = message->gpu_max_mhz,
                .slow = message->gpu_slow,
                .xid = message->gpu_xid}};
    for (int i = 0; i < message->count; i++)
        node->calls[node->count++] = (struct straggler_call){
            .group = message->list[i].group,
            .number = message->list[i].number,
            .entered_ns = message->list[i].entered_ns,
            .shape = message->list[i].shape};
}

void agent_on_calls(struct agent *agent, const struct ct_calls *message)
{
    struct slow_node_watch *watch = agent->slow_node;

    if (watch && agent->state == AGENT_RUNNING &&
        message->generation == agent->start.generation &&
        message->node < (uint32_t)watch->count)
        take(watch, message);
}

/* ---- Each node --------------------------------------------------------------------------- */

void agent_on_clock(struct agent *agent, const struct ct_clock *message)
{
    if (agent->slow_node)
        clock_offset_add(&agent->slow_node->clock, message->agent_ns,
                         message->server_ns, ct_now_ns());
}

/* Asks often at first: an answer that comes when the agent is otherwise idle is the most exact. */
static void on_time(void *context)
{
    struct slow_node_watch *watch = context;
    const struct ct_clock clock = {.agent_ns = ct_now_ns()};

    if (watch->agent->state != AGENT_RUNNING)
        return;
    loop_timer_set(watch->timer, watch->clock.count < CLOCK_OFFSET_SAMPLES
                                     ? CLOCK_ASK_FIRST_MS
                                     : CLOCK_ASK_MS);
    if (link_is_up(watch->agent->link))
        link_send(watch->agent->link,
                  &(struct ct_message){CT_MESSAGE_CLOCK, .clock = &clock});
}

/* `count` is 255 at most, so that it fits into a byte. */
static void send_some(struct slow_node_watch *watch, const struct straggler_call *calls,
                      int count, int64_t ahead_ns)
{
    struct ct_calls *message = &watch->message;

    message->count = (uint8_t)count;
    for (int i = 0; i < count; i++)
        message->list[i] = (struct ct_call){.group = calls[i].group,
                                            .number = calls[i].number,
                                            .entered_ns = calls[i].entered_ns +
                                                          (uint64_t)ahead_ns,
                                            .shape = calls[i].shape};
    if (watch->agent->start.group_rank > 0)
        link_send(watch->agent->link,
                  &(struct ct_message){CT_MESSAGE_CALLS, .calls = message});
    else if (watch->count > 0)
        take(watch, message);
}

static uint32_t to_permille(double part)
{
    return part < 1 ? (uint32_t)(part * 1000) : 1000;
}

/* All fields except the calls. */
static void fill(struct slow_node_watch *watch, const struct rank_rates *rates,
                 uint64_t doubt_ns)
{
    const struct agent *agent = watch->agent;
    const int local = watch->sent.last_rank;

    watch->message = (struct ct_calls){.generation = agent->start.generation,
                                       .node = agent->start.group_rank,
                                       .rank = -1,
                                       .doubt_ns = doubt_ns};
    (void)ct_copy(watch->message.host, sizeof watch->message.host,
                  agent->options->hello.host); /* same size */
    if (local < 0)
        return;
    watch->message.rank = worker_group_worker(agent->group, local)->rank;
    watch->message.wait_permille = to_permille(rates[local].wait);
    watch->message.steal_permille = to_permille(rates[local].steal);
    watch->message.faults = (uint32_t)rates[local].faults;
    watch->message.mhz = (uint32_t)rates[local].mhz;
    watch->message.resent = (uint32_t)rates[local].resent;
    watch->message.gpu_mhz = (uint32_t)rates[local].gpu.mhz;
    watch->message.gpu_max_mhz = (uint32_t)rates[local].gpu.max_mhz;
    watch->message.gpu_slow = rates[local].gpu.slow;
    watch->message.gpu_xid = rates[local].gpu.xid;
}

/* How far the wall clock, which torch's recorder uses, is behind ours. */
static int64_t find_wall_behind_ns(void)
{
    struct timespec wall;
    const uint64_t now_ns = ct_now_ns();

    (void)clock_gettime(CLOCK_REALTIME, &wall);
    return (int64_t)now_ns - ((int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec);
}

/* Sends nothing until the offset to the server's clock is known: calls cannot be compared without
 * the offset. Group rank 0 keeps its own calls and does not send them. */
int agent_compare_nodes(struct agent *agent, const struct straggler *given,
                        bool is_wall, const struct rank_rates *rates)
{
    struct slow_node_watch *watch = agent->slow_node;
    int64_t ahead_ns;
    uint64_t doubt_ns;
    int count, sent = 0;

    if (!watch || agent->start.group_world_size < 2)
        return 0;
    if (!link_is_up(agent->link) ||
        !clock_offset_get(&watch->clock, ct_now_ns(), &ahead_ns, &doubt_ns))
        return 0;
    count = node_calls_take(&watch->sent, given, watch->calls, SENT_MAX);
    if (is_wall)
        ahead_ns += find_wall_behind_ns();
    fill(watch, rates, doubt_ns);
    for (; sent < count; sent += watch->message.count)
        send_some(watch, watch->calls + sent,
                  count - sent < CT_CALLS_MAX ? count - sent : CT_CALLS_MAX, ahead_ns);
    if (watch->count > 0)
        judge(watch);
    return sent;
}

/* ---- Life -------------------------------------------------------------------------------- */

static void forget_nodes(struct slow_node_watch *watch)
{
    for (int i = 0; i < watch->count; i++)
        free(watch->nodes[i].calls);
    free(watch->nodes);
    free(watch->rates);
    straggler_destroy(watch->straggler);
    watch->nodes = NULL;
    watch->rates = NULL;
    watch->straggler = NULL;
    watch->count = 0;
    watch->report.is_set = false;
}

/* A round begins, or the link is back: forgets nodes and clocks, which belong to another world or
 * server. */
void agent_start_slow_node(struct agent *agent)
{
    struct slow_node_watch *watch = agent->slow_node;
    const uint32_t nodes = agent->start.group_world_size;

    if (!watch)
        return;
    forget_nodes(watch);
    watch->sent = (struct node_calls){0};
    watch->clock = (struct clock_offset){0}; /* the server may be another one */
    if (nodes < 2)
        return;
    loop_timer_set(watch->timer, CLOCK_ASK_FIRST_MS);
    if (nodes > NODES_MAX || agent->start.group_rank > 0)
        return;
    watch->nodes = ct_zalloc_array(nodes, sizeof *watch->nodes);
    watch->rates = ct_zalloc_array(nodes, sizeof *watch->rates);
    watch->straggler = straggler_create((int)nodes);
    if (watch->nodes && watch->rates && watch->straggler)
        watch->count = (int)nodes;
    else
        forget_nodes(watch);
}

int agent_open_slow_node(struct agent *agent, struct ctrun_error *err)
{
    if (!(agent->slow_node = ct_zalloc(sizeof *agent->slow_node)))
        return ct_fail(err, -ENOMEM, "stragglers: out of memory");
    agent->slow_node->agent = agent;
    if (!(agent->slow_node->timer = loop_timer_open(agent->loop, on_time,
                                                    agent->slow_node)))
        return ct_fail(err, -ENOMEM, "stragglers: out of memory");
    return 0;
}

void agent_close_slow_node(struct agent *agent)
{
    if (!agent->slow_node)
        return;
    loop_timer_close(agent->slow_node->timer);
    forget_nodes(agent->slow_node);
    free(agent->slow_node);
    agent->slow_node = NULL;
}
