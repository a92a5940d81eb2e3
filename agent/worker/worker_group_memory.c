/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the workers, read every few seconds as long as any worker runs; that of their children when asked. */
#include "agent/postmortem/facts.h"
#include "agent/process/reap.h"
#include "agent/worker/worker_group_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

/* A count that has grown is the proof for all workers that are killed soon after. */
void worker_group_look_for_oom(struct worker_group *group)
{
    char proof[sizeof group->oom_proof];

    if (!oom_counter_has_oom_killed(&group->cgroup, proof, sizeof proof))
        return;
    memcpy(group->oom_proof, proof, sizeof proof);
    group->oom_seen_ms = ct_now_ms();
}

void worker_group_on_memory(void *context)
{
    struct worker_group *group = context;
    bool is_any = false;

    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];

        is_any |= worker->state == WORKER_RESTARTING;
        if (worker->state != WORKER_RUNNING)
            continue;
        memory_add(&worker->memory, memory_read_kib(worker->pid), ct_now_ms());
        is_any = true;
    }
    worker_group_look_for_oom(group);
    shm_watch_look(&group->shm, false);
    if (is_any)
        loop_timer_set(group->memory_timer, MEMORY_EVERY_MS);
}

struct children_walk {
    const struct worker_group *group;
    struct worker_children *list;
};

static void add_child(void *context, const struct reap_process *process)
{
    const struct children_walk *walk = context;
    int64_t kib;

    for (int i = 0; i < walk->group->count; i++) {
        const struct worker *worker = &walk->group->workers[i];

        if (worker->state != WORKER_RUNNING || worker->pid != process->session ||
            worker->pid == process->pid)
            continue;
        kib = memory_read_kib(process->pid);
        walk->list[i].count++;
        walk->list[i].rss_kb += kib > 0 ? kib : 0; /* it may have ended meanwhile */
    }
}

void worker_group_count_children(const struct worker_group *group,
                                 struct worker_children *out)
{
    struct children_walk walk = {group, out};

    (void)reap_scan(&group->keep, add_child, &walk);
}

void worker_group_find_larger(const struct worker_group *group, uint64_t bytes,
                              char *dst, size_t size)
{
    char text[FACTS_SIZE_MAX];

    dst[0] = '\0';
    for (int i = 0; i < group->count; i++) {
        const struct worker *worker = &group->workers[i];
        const int64_t kib = worker->state == WORKER_RUNNING
                                ? memory_read_kib(worker->pid)
                                : -1;
        const size_t used = strlen(dst);

        if (kib <= 0 || (uint64_t)kib * 1024 <= bytes)
            continue;
        facts_format_size(text, (uint64_t)kib * 1024);
        if (ct_format(dst + used, size - used, "%srank %d %s%s", used ? ", " : "",
                      worker->rank, used ? "" : "holds ", text) < 0)
            dst[used] = '\0';
    }
}
