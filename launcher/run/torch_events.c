/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/torch_events.h"

#include <errno.h>

#include "launcher/report/json_torch.h"
#include "launcher/report/summary.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

int torch_events_init(struct torch_events *events, const struct config *config)
{
    *events = (struct torch_events){0};
    if (!config->output.prints_torch_events)
        return 0;
    events->workers = ct_zalloc_array((size_t)config->run.nproc,
                                      sizeof *events->workers);
    if (!events->workers)
        return -ENOMEM;
    events->config = config;
    events->began_ms = events->meeting_ms = ct_now_ms();
    return 0;
}

void torch_events_deinit(struct torch_events *events)
{
    free(events->workers);
    *events = (struct torch_events){0};
}

/* ---- One event ----------------------------------------------------------------------- */

static struct json_torch_event describe(const struct torch_events *events,
                                        const char *state)
{
    const struct config *config = events->config;
    const bool has_round = events->start.generation > 0;

    return (struct json_torch_event){
        .state = state,
        .run_id = config->run.run_id,
        .role = config->run.role,
        .host = config->run.host,
        .backend = config->rdzv.backend == CONFIG_STATIC ? "static"
                   : config->rdzv.backend == CONFIG_ETCD ? "etcd"
                                                         : "c10d",
        .entry_point = ct_base_name(config->work.program.path),
        .group_rank = has_round ? (int)events->start.group_rank : -1,
        .group_world_size = has_round ? (int)events->start.group_world_size : -1,
        .restarts = events->start.restart_count,
        .duration_ms = -1,
    };
}

static void print(const struct json_torch_event *event)
{
    char *line = json_torch_event_format(event);

    if (line)
        fprintf(stderr, "%s\n", line);
    free(line);
}

static void print_worker(const struct torch_events *events, const char *state,
                         int local_rank, const struct ct_failure *failure)
{
    struct json_torch_event event = describe(events, state);
    struct ct_role_at role;

    config_role_at(&role, events->config, &events->start, local_rank);
    event.role = role.name;
    event.entry_point = ct_base_name(config_program(events->config, local_rank)->path);
    event.is_worker = true;
    event.pid = events->workers[local_rank].pid;
    event.rank = (int)events->start.rank_base + local_rank;
    event.local_rank = events->config->run.task.local_id + local_rank;
    event.role_rank = (int)role.rank;
    event.role_world_size = (int)role.world_size;
    if (failure) {
        event.has_failed = true;
        event.exit_code = summary_python_code(failure);
        event.error_file = failure->error_file;
        event.redacts = events->config->output.redacts;
    }
    print(&event);
}

/* ---- What happens -------------------------------------------------------------------- */

void torch_events_round(struct torch_events *events, const struct ct_start *start)
{
    struct json_torch_event event;

    if (!events->config)
        return;
    memset(events->workers, 0,
           (size_t)events->config->run.nproc * sizeof *events->workers);
    event = describe(events, "RENDEZVOUS"); /* has no ranks yet */
    event.restarts = start->restart_count;
    event.duration_ms = (double)(ct_now_ms() - events->meeting_ms);
    print(&event);
    event.state = "ASSIGN_WORKER_RANKS";
    event.duration_ms = 0; /* the ranks came with the round */
    print(&event);
    events->start = *start;
}

void torch_events_round_over(struct torch_events *events)
{
    events->meeting_ms = ct_now_ms();
}

static bool is_worker(const struct torch_events *events, int local_rank)
{
    return events->config && local_rank >= 0 && local_rank < events->config->run.nproc;
}

void torch_events_worker_started(struct torch_events *events, int local_rank, int pid)
{
    if (!is_worker(events, local_rank))
        return;
    /* Forgets the end of a worker that is restarted alone. */
    events->workers[local_rank] = (struct torch_events_worker){.pid = pid};
    print_worker(events, "START", local_rank, NULL);
}

void torch_events_worker_ended(struct torch_events *events,
                               const struct ct_failure *end)
{
    const int local_rank = events->config
                               ? end->local_rank - events->config->run.task.local_id
                               : -1;

    if (!is_worker(events, local_rank))
        return;
    events->workers[local_rank].has_ended = true;
    events->workers[local_rank].end = *end;
}

/* In a failed round a worker that did not fail counts as TERMINATED. */
static const char *state_of(const struct torch_events_worker *worker, bool has_failed)
{
    if (!worker->has_ended)
        return "TERMINATED";
    if (worker->end.cause != CT_CAUSE_NONE)
        return "FAILED";
    return has_failed ? "TERMINATED" : "SUCCEEDED";
}

void torch_events_over(struct torch_events *events, const char *why)
{
    struct json_torch_event event;
    bool has_failed = false;
    const int count = events->config && !why && events->start.generation
                          ? events->config->run.nproc
                          : 0;

    if (!events->config)
        return;
    for (int i = 0; i < count; i++)
        has_failed |= events->workers[i].end.cause != CT_CAUSE_NONE;
    for (int i = 0; i < count; i++) {
        const struct torch_events_worker *worker = &events->workers[i];
        const bool is_bad = worker->end.cause != CT_CAUSE_NONE;

        print_worker(events, state_of(worker, has_failed), i,
                     is_bad ? &worker->end : NULL);
    }
    event = describe(events, why ? "FAILED" : "SUCCEEDED");
    event.error = why;
    event.total_s = (ct_now_ms() - events->began_ms) / 1000;
    print(&event);
}
