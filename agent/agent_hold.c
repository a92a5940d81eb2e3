/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints that workers have put into memory: this node neither joins a new round nor ends
 * before they are on the disk, or lost. A rank on another node would load an older checkpoint. */
#include <sys/sysinfo.h>

#include "agent/node/agent_private.h"
#include "agent/worker/worker.h"

/* Half of the memory: the workers and the page cache have the other half. It takes twenty system calls, so it is called
 * only when a checkpoint is to be held. */
static uint64_t find_room(void)
{
    struct oom_counter cgroup;
    struct sysinfo info = {0};
    uint64_t limit, all;

    (void)sysinfo(&info);
    all = (uint64_t)info.totalram * info.mem_unit;
    oom_counter_init(&cgroup, "/proc/self/cgroup", "/sys/fs/cgroup");
    limit = oom_counter_get_limit(&cgroup, NULL);
    return (limit < all ? limit : all) / 2;
}

/* On the writer's thread. Once the guard has killed the workers, another world may run and write the same files. */
static bool may_write(void)
{
    return !fence_has_cut();
}

static void on_end(void *context, const struct hold_end *end)
{
    const struct agent *agent = context;
    struct ct_event event;

    ct_event_begin(&event, "checkpoint_held");
    ct_event_int(&event, "rank", end->rank);
    ct_event_str(&event, "path", end->path);
    ct_event_int(&event, "bytes", (int64_t)end->bytes);
    ct_event_str(&event, "state", end->why ? "lost" : "written");
    ct_event_int(&event, "took_ms", (int64_t)end->took_ms);
    ct_event_str(&event, "worker", end->is_left ? "gone" : "there");
    if (end->why)
        ct_event_str(&event, "why", end->why->text);
    ct_event_end(&event);
    ct_info("held checkpoint %s rank=%d bytes=%llu path=%s%s%s",
            end->why ? "lost" : "written", end->rank, (unsigned long long)end->bytes,
            end->path, end->why ? " why=" : "", end->why ? end->why->text : "");
    if (agent->options->on_held)
        agent->options->on_held(agent->options->context, end);
}

/* The end of this process or the next round waits for this. */
static void on_idle(void *context)
{
    struct agent *agent = context;

    if (agent->state == AGENT_ENDED)
        loop_stop(agent->loop); /* second call: see agent.c */
    else if (agent->joins_later && link_is_up(agent->link))
        agent_join(agent);
}

int agent_open_hold(struct agent *agent, struct ctrun_error *err)
{
    const struct hold_options options = {
        .loop = agent->loop,
        .find_max_bytes = find_room,
        .may_write = may_write,
        .context = agent,
        .reply = worker_socket_reply_hold,
        .on_end = on_end,
        .on_idle = on_idle,
    };
    const int rc = hold_create(&agent->hold, &options);

    return rc < 0 ? ct_fail(err, rc, "held checkpoints: out of memory") : 0;
}

void agent_check_hold(struct agent *agent)
{
    struct agent_result *result = agent->result;

    if (result->signal || result->error.code || !agent->group ||
        result->verdict.outcome != CT_OUTCOME_SUCCEEDED)
        return;
    for (int i = 0; i < worker_group_count(agent->group); i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);

        if (worker->state == WORKER_ENDED && worker->failure.cause == CT_CAUSE_NONE &&
            hold_find_lost(agent->hold, worker->rank, &result->error) < 0) {
            result->has_lost_checkpoint = true;
            return;
        }
    }
}
