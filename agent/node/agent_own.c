/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that have started ranks of their own, and wait: reported once, with what was seen. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/node/agent_private.h"
#include "agent/watch/own_ranks.h"
#include "agent/worker/worker.h"
#include "worker_sdk/base/alloc.h"

struct own_watch {
    struct agent *agent;
    struct loop_timer *timer;
    struct own_ranks first; /* of two looks */
    int looks;              /* pairs of this round */
    bool has_begun;         /* the first of a pair is done */
    bool has_reported;
};

static uint64_t limit_ms(const struct own_watch *watch)
{
    return watch->agent->options->own_ranks_ms;
}

static uint64_t pause_ms(const struct own_watch *watch)
{
    return limit_ms(watch) / OWN_RANKS_PAUSE_PART;
}

/* No client has used the store in which ranks of this world would connect. */
static bool is_unused(const struct agent *agent)
{
    const struct agent_options *options = agent->options;

    return agent->has_store && options->store_is_unused &&
           options->store_is_unused(options->context, agent->store);
}

static bool look(const struct agent *agent, struct own_ranks *out)
{
    const int count = worker_group_count(agent->group);
    pid_t *pids = ct_zalloc_array((size_t)count, sizeof *pids);
    int running = 0;
    int rc = -1;

    for (int i = 0; pids && i < count; i++)
        if (worker_group_worker(agent->group, i)->state == WORKER_RUNNING)
            pids[running++] = worker_group_worker(agent->group, i)->pid;
    if (pids)
        rc = own_ranks_look(out, pids, running);
    free(pids);
    return rc == 0 && out->worker != 0;
}

static void report(struct own_watch *watch, const struct own_ranks *found)
{
    struct agent *agent = watch->agent;

    watch->has_reported = true;
    ct_event_emit("own_ranks", CT_INT("generation", agent->start.generation),
                  CT_INT("rank", worker_group_find_rank(agent->group, found->worker)),
                  CT_INT("worker_pid", found->worker),
                  CT_INT("process_pid", found->first), CT_INT("count", found->count),
                  CT_STR("theirs", found->theirs));
    if (agent->options->on_own_ranks)
        agent->options->on_own_ranks(
            agent->options->context,
            worker_group_find_rank(agent->group, found->worker), found);
}

/* Both looks saw the same processes, and between them none has used the CPU. A process that is seen
 * between fork and exec still has its parent's command line. */
static bool has_waited(const struct own_watch *watch, const struct own_ranks *now)
{
    return now->first == watch->first.first && now->count == watch->first.count &&
           strcmp(now->theirs, watch->first.theirs) == 0 &&
           now->cpu_ticks <=
               watch->first.cpu_ticks + pause_ms(watch) / OWN_RANKS_TICK_PART;
}

/* Looks twice, a pause apart. */
static void on_timer(void *context)
{
    struct own_watch *watch = context;
    struct own_ranks found;

    if (watch->agent->state != AGENT_RUNNING || !is_unused(watch->agent))
        return;
    if (look(watch->agent, &found)) {
        if (!watch->has_begun) {
            watch->has_begun = true;
            watch->first = found;
            loop_timer_set(watch->timer, pause_ms(watch));
            return;
        }
        if (has_waited(watch, &found)) {
            report(watch, &found);
            return;
        }
    }
    watch->has_begun = false;
    if (++watch->looks < OWN_RANKS_LOOKS)
        loop_timer_set(watch->timer, limit_ms(watch) - pause_ms(watch));
}

void agent_start_own(struct agent *agent)
{
    struct own_watch *watch = agent->own;

    if (!watch || watch->has_reported || agent->start.group_rank != 0)
        return;
    watch->has_begun = false;
    watch->looks = 0;
    loop_timer_set(watch->timer, limit_ms(watch) - pause_ms(watch));
}

void agent_stop_own(struct agent *agent)
{
    if (agent->own)
        loop_timer_stop(agent->own->timer);
}

int agent_open_own(struct agent *agent, struct ctrun_error *err)
{
    if (agent->options->own_ranks_ms == 0)
        return 0;
    if (!(agent->own = ct_zalloc(sizeof *agent->own)) ||
        !(agent->own->timer = loop_timer_open(agent->loop, on_timer, agent->own)))
        return ct_fail(err, -ENOMEM, "agent: out of memory");
    agent->own->agent = agent;
    return 0;
}

void agent_close_own(struct agent *agent)
{
    if (agent->own)
        loop_timer_close(agent->own->timer);
    free(agent->own);
}
