/* SPDX-License-Identifier: Apache-2.0 */
/* torchrun's own events, for tools that read them: --event-log-handler=console prints each
 * event as one line of JSON on stderr. (ctrun's own events, with more detail, go to CTRUN_EVENTS.)
 *
 *     each round   agent RENDEZVOUS, agent ASSIGN_WORKER_RANKS, a START for each worker
 *     at the end   SUCCEEDED, FAILED or TERMINATED for each worker of the last round, then
 *                  agent SUCCEEDED (the run has ended, also when workers failed) or FAILED
 *
 * Does nothing when it is off. */
#pragma once

#include "launcher/config/config.h"

struct torch_events_worker {
    int pid; /* 0: not started */
    bool has_ended;
    struct ct_failure end;
};

struct torch_events {
    const struct config *config; /* NULL: off */
    uint64_t began_ms;
    uint64_t meeting_ms;   /* start of the rendezvous before the next round */
    struct ct_start start; /* of the last round */
    struct torch_events_worker *workers; /* of the last round; owned */
};

/* 0, or -ENOMEM. */
int torch_events_init(struct torch_events *events, const struct config *config);
void torch_events_deinit(struct torch_events *events);

void torch_events_round(struct torch_events *events, const struct ct_start *start);
void torch_events_round_over(struct torch_events *events);
void torch_events_worker_started(struct torch_events *events, int local_rank, int pid);
void torch_events_worker_ended(struct torch_events *events,
                               const struct ct_failure *end);
/* why: NULL, or why the agent itself failed. */
void torch_events_over(struct torch_events *events, const char *why);
