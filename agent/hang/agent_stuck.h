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
    uint64_t rested_ms;        /* its first thread has not run since */
    bool is_seen;              /* by the last look */
    bool answers;              /* its recorder, then */
    bool waits;                /* judged by that look */
    struct recorder_view view; /* the last one that there was */
    struct live_place place;
    char *dump; /* owned; NULL: none */
    char call[STUCK_CALL_MAX];
};

struct stuck_watch {
    struct agent *agent;
    struct loop_timer *timer;
    struct worker_look *look; /* NULL: none is under way */
    uint64_t look_ms;         /* when the next one is due */
    uint64_t clock_ms; /* the wall clock was set: before that its times say nothing */
    int64_t wall_ahead_ms;
    uint64_t unread_ms; /* no look since then could read any of them; 0: one could */
    bool has_reported_nobody;
    struct stuck_mind *minds; /* by local rank */
    struct stuck_rank *ranks; /* one more than there are workers */
    int *local;               /* their local ranks */
};

/* ---- agent_stuck_failure.c ----------------------------------------------------------------- */

/* The failure of the suspect among `count` of watch->ranks; -1 in watch->local: it stands for ranks of other
 * nodes. */
void agent_stuck_fill(struct ct_failure *out, const struct stuck_watch *watch,
                      int count, const struct stuck_report *report);
