/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that have not connected to the worker store, although others have: all of them wait then,
 * until torch's time limit.
 *
 *     each node, at each look       its workers that have no connection to MASTER_PORT and use no
 *                                   CPU ── ABSENT ──> the agent of group rank 0
 *     group rank 0, at each look    some ranks have counted themselves in the store, as torch's do, and
 *                                   no further rank has for a while: a notice, an event, and
 *                                   ctrunctl status
 *
 * A rank that uses the CPU probably imports; it is named only after a minute. Nothing is reported of a
 * store that is not ctrun's, nor in a world of several roles, of which some may not use torch. */
#include <errno.h>
#include <stdlib.h>

#include "agent/node/agent_private.h"
#include "agent/process/peer_sockets.h"
#include "agent/process/reap.h"
#include "agent/watch/rank_list.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/small_file.h"

struct rank_seen {
    bool is_connected; /* has been seen so in this round */
    bool is_looked;    /* at the last look its processes were found */
    bool is_hidden;    /* the kernel does not let us look */
    uint64_t ticks, ticks_before;
};

struct absent_watch {
    struct agent *agent;
    struct loop_timer *timer;
    int looks; /* of this round */
    struct rank_seen seen[AGENT_WORKERS_MAX];
    bool has_sent;

    /* Used by group rank 0 only. */
    uint64_t counted_before; /* in the store, by earlier rounds */
    uint64_t connected;      /* at the last look */
    int same;                /* looks since it has changed */
    int node_count;
    struct ct_absent nodes[AGENT_ABSENT_NODES_MAX];
    bool has_reported;
    struct agent_absent report;
};

static uint64_t pause_ms(const struct absent_watch *watch)
{
    const uint64_t limit_ms = watch->agent->options->absent_ms;

    return watch->looks < AGENT_ABSENT_FIRST_LOOKS ? limit_ms / 2 : limit_ms * 6;
}

/* ---- The workers of this node ------------------------------------------------------------ */

static void visit(void *context, const struct reap_process *process)
{
    struct absent_watch *watch = context;
    struct worker_group *group = watch->agent->group;
    struct peer_sockets *sockets;

    for (int i = 0; i < worker_group_count(group); i++) {
        struct rank_seen *seen = &watch->seen[i];
        int count = -ENOMEM;

        if (worker_group_worker(group, i)->pid != process->session ||
            seen->is_connected)
            continue;
        seen->is_looked = true;
        seen->ticks += ct_small_file_ticks(process->pid);
        if ((sockets = peer_sockets_create())) {
            peer_sockets_add(sockets, i, process->pid, false);
            count = peer_sockets_count(sockets, watch->agent->start.master_port);
        }
        peer_sockets_destroy(sockets);
        seen->is_connected = count > 0;
        seen->is_hidden |= count < 0;
    }
}

static bool is_absent(const struct absent_watch *watch, int i)
{
    const struct rank_seen *seen = &watch->seen[i];
    const uint64_t used = seen->ticks - seen->ticks_before;

    if (worker_group_worker(watch->agent->group, i)->state != WORKER_RUNNING ||
        seen->is_connected || !seen->is_looked || seen->is_hidden)
        return false;
    return watch->looks > AGENT_ABSENT_FIRST_LOOKS ||
           (watch->looks > 1 && used <= pause_ms(watch) / AGENT_ABSENT_TICK_PART);
}

/* Fills in all fields. */
static void look(struct absent_watch *watch, struct ct_absent *out)
{
    const struct agent *agent = watch->agent;
    int ranks[AGENT_WORKERS_MAX];

    *out = (struct ct_absent){.generation = agent->start.generation,
                              .node = agent->start.group_rank};
    (void)ct_copy(out->host, sizeof out->host,
                  agent->options->hello.host); /* same size */
    for (int i = 0; i < worker_group_count(agent->group); i++) {
        watch->seen[i].ticks_before = watch->seen[i].ticks;
        watch->seen[i].ticks = 0;
        watch->seen[i].is_looked = watch->seen[i].is_hidden = false;
    }
    (void)reap_scan(NULL, visit, watch); /* without /proc nobody is found */
    for (int i = 0; i < worker_group_count(agent->group); i++)
        if (is_absent(watch, i))
            ranks[out->count++] = worker_group_worker(agent->group, i)->rank;
    rank_list_format(out->ranks, sizeof out->ranks, ranks, (int)out->count);
}

static bool are_all_connected(const struct absent_watch *watch)
{
    for (int i = 0; i < worker_group_count(watch->agent->group); i++)
        if (!watch->seen[i].is_connected)
            return false;
    return true;
}

/* ---- Group rank 0 ------------------------------------------------------------------------ */

/* Nodes beyond AGENT_ABSENT_NODES_MAX are left out: their ranks are counted, not named. */
static void take(struct absent_watch *watch, const struct ct_absent *absent)
{
    int i = 0;

    while (i < watch->node_count && watch->nodes[i].node != absent->node)
        i++;
    if (i == watch->node_count && absent->count == 0)
        return;
    if (i ==
        AGENT_ABSENT_NODES_MAX) /* takes the place of one whose ranks have connected */
        for (i = 0; i < watch->node_count && watch->nodes[i].count > 0;)
            i++;
    if (i == watch->node_count && i < AGENT_ABSENT_NODES_MAX)
        watch->node_count++;
    if (i < watch->node_count)
        watch->nodes[i] = *absent;
}

void agent_on_absent(struct agent *agent, const struct ct_absent *message)
{
    if (agent->absent && message->generation == agent->start.generation &&
        agent->start.group_rank == 0)
        take(agent->absent, message);
}

/* False: no rank can be named, or more than there are. */
static bool describe(const struct absent_watch *watch, struct agent_absent *out)
{
    const uint32_t missing = out->world_size - out->connected;
    uint32_t named = 0;

    out->text[0] = '\0';
    for (int i = 0; i < watch->node_count; i++) {
        const struct ct_absent *node = &watch->nodes[i];
        const size_t length = strlen(out->text);

        if (!*node->ranks)
            continue;
        if (ct_append_item(out->text, sizeof out->text - 32, ", ", "rank%s %s (%s)",
                           node->count == 1 ? "" : "s", node->ranks, node->host) >= 0)
            named += node->count;
        else
            out->text[length] = '\0';
    }
    if (named > 0 && named < missing)
        (void)ct_append(out->text, sizeof out->text, " and %u more", missing - named);
    ct_make_plain(out->text, false);
    return named > 0 && named <= missing;
}

static void report(struct absent_watch *watch)
{
    struct agent *agent = watch->agent;
    struct agent_absent *report = &watch->report;

    *report = (struct agent_absent){.connected = (uint32_t)watch->connected,
                                    .world_size = agent->start.world_size};
    if (!describe(watch, report)) {
        if (watch->same <= AGENT_ABSENT_FIRST_LOOKS)
            report->connected = 0;
        (void)ct_format(report->text, sizeof report->text, "%u (not known which)",
                        report->world_size - (uint32_t)watch->connected);
    }
    if (report->connected == 0 || watch->has_reported)
        return;
    watch->has_reported = true;
    ct_event_emit("ranks_absent", CT_INT("generation", agent->start.generation),
                  CT_INT("connected", report->connected),
                  CT_INT("world_size", report->world_size),
                  CT_STR("ranks", report->text));
    if (agent->options->on_absent)
        agent->options->on_absent(agent->options->context, report);
}

static uint64_t count_in_store(const struct agent *agent)
{
    struct agent_store_marks marks = {0};

    if (agent->has_store && agent->options->look_at_store)
        agent->options->look_at_store(agent->options->context, agent->store, NULL, 0,
                                      &marks);
    return marks.ranks;
}

/* The store of the endpoint (static) goes on counting. */
static uint64_t count_connected(struct absent_watch *watch)
{
    const uint64_t counted = count_in_store(watch->agent);

    if (counted < watch->counted_before)
        watch->counted_before = 0; /* it has begun anew */
    return counted - watch->counted_before;
}

/* False: there is nothing more to report in this round. */
static bool judge(struct absent_watch *watch, uint64_t connected)
{
    const uint32_t world_size = watch->agent->start.world_size;

    watch->same = connected == watch->connected ? watch->same + 1 : 0;
    watch->connected = connected;
    watch->report.connected = 0;
    if (connected > 0 && connected < world_size && watch->same > 1)
        report(watch);
    return connected < world_size;
}

const struct agent_absent *agent_absent(const struct agent *agent)
{
    return agent->absent && agent->absent->report.connected > 0 &&
                   agent_is_undisturbed(agent)
               ? &agent->absent->report
               : NULL;
}

/* ---- Life -------------------------------------------------------------------------------- */

/* Sends nothing until a rank is absent. */
static void send_own(struct absent_watch *watch, const struct ct_absent *absent)
{
    if (absent->count == 0 && !watch->has_sent)
        return;
    watch->has_sent = absent->count > 0;
    link_send(watch->agent->link,
              &(struct ct_message){CT_MESSAGE_ABSENT, .absent = absent});
}

static void on_timer(void *context)
{
    struct absent_watch *watch = context;
    const bool is_first = watch->agent->start.group_rank == 0;
    const uint64_t connected = is_first ? count_connected(watch) : 0;
    struct ct_absent own;
    bool goes_on;

    if (!agent_is_undisturbed(watch->agent))
        return;
    if (!is_first || connected > 0)
        look(watch, &own);
    if (is_first) {
        if (connected > 0)
            take(watch, &own);
        goes_on = judge(watch, connected);
    } else {
        send_own(watch, &own);
        goes_on = !are_all_connected(watch);
    }
    if (goes_on && ++watch->looks < AGENT_ABSENT_LOOKS)
        loop_timer_set(watch->timer, pause_ms(watch));
    else
        watch->report.connected = 0; /* nobody looks any more */
}

void agent_start_absent(struct agent *agent)
{
    struct absent_watch *watch = agent->absent;

    if (!watch)
        return;
    *watch = (struct absent_watch){.agent = agent,
                                   .timer = watch->timer,
                                   .node_count = 1 /* the first one is named first */};
    if (agent->start.group_rank == 0)
        watch->counted_before = count_in_store(agent);
    if (agent->start.world_size > 1 && agent_has_one_role(agent))
        loop_timer_set(watch->timer, pause_ms(watch));
}

int agent_open_absent(struct agent *agent, struct ctrun_error *err)
{
    if (agent->options->absent_ms == 0)
        return 0;
    if (!(agent->absent = ct_zalloc(sizeof *agent->absent)) ||
        !(agent->absent->timer = loop_timer_open(agent->loop, on_timer, agent->absent)))
        return ct_fail(err, -ENOMEM, "agent: out of memory");
    return 0;
}

void agent_close_absent(struct agent *agent)
{
    if (agent->absent)
        loop_timer_close(agent->absent->timer);
    free(agent->absent);
}
