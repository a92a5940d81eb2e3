/* SPDX-License-Identifier: Apache-2.0 */
/* --hang-timeout for workers that report no steps, inside the agent. */
#pragma once

#include "agent/node/agent_private.h"
#include "agent/recorder/worker_look.h"
#include "agent/watch/stuck.h"

enum {
    STUCK_CALL_MAX = RECORDER_NAME_MAX + RECORDER_SIZES_MAX + 2
};

/* What is known of one worker. */
struct stuck_mind {
    pid_t pid; /* 0: nothing is known */
    char state;
    uint64_t bytes, memory_mib, switches;
    uint64_t moved_ms;         /* its bytes grew; at first: it started */
    uint64_t rested_ms;        /* since then its first thread has not run */
    bool is_seen;              /* at the last look */
    bool answers;              /* at the last look its recorder answered */
    bool waits;                /* judged by that look */
    struct recorder_view view; /* the last one that came */
    struct live_place place;
    char *dump; /* owned; NULL: none */
    char call[STUCK_CALL_MAX];
};

struct stuck_watch {
    struct agent *agent;
    struct loop_timer *timer;
    struct worker_look *look; /* NULL: no look is under way */
    uint64_t look_ms;         /* when the next look is due */
    uint64_t clock_ms; /* the wall clock was set then: do not use earlier times */
    int64_t wall_ahead_ms;
    uint64_t unread_ms; /* since then no look could read a worker; 0: one could */
    bool has_reported_nobody;
    struct stuck_mind *minds; /* by local rank */
    struct stuck_rank *ranks; /* one more than there are workers */
    int *local;               /* local ranks of `ranks` */
    struct ct_stuck_call
        theirs; /* in which ranks of another node wait; op[0] 0: not known */
};

/* ---- agent_stuck_failure.c ----------------------------------------------------------------- */

/* Writes the failure of the suspect among the `count` ranks of watch->ranks; -1 in watch->local: an
 * entry for ranks of other nodes. */
void agent_stuck_fill(struct ct_failure *out, const struct stuck_watch *watch,
                      int count, const struct stuck_report *report);
/* Adds the call of the waiter, for the nodes that are asked; the waiter is a worker of ours. */
void agent_stuck_fill_call(struct ct_failure *out, const struct stuck_watch *watch,
                           int count, const struct stuck_report *report);
