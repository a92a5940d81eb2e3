/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the worker group; no other file includes it.
 *
 * Each file calls only files below it:
 *
 *     worker_group.c          the start, the facts
 *     worker_group_reap.c     the ends, and the timers of stops and restarts
 *     worker_group_survivors.c  the stop of workers that may wait for a rank that is gone
 *     worker_group_stop.c     the stop of all
 *     worker_group_restart.c  a worker that is started again alone, or is lost alone
 *     worker_group_lost.c     who continues without a lost worker
 *     worker_group_memory.c   the looks at their memory */
#pragma once

#include "agent/postmortem/oom_counter.h"
#include "agent/process/orphans.h"
#include "agent/process/policy.h"
#include "agent/process/shm.h"
#include "agent/worker/worker_group.h"
#include "agent/worker/worker.h"

struct worker_group {
    struct worker_group_options options;
    struct worker_place place;
    struct ct_start start;
    struct worker *workers;
    int count;
    bool
        is_waiting; /* the workers of `start` start once the template is ready, or refused */
    struct reap_keep keep; /* processes that a stop leaves running: the template */
    struct logfile_writer *files;
    struct policy policy;
    struct loop_timer *timer;         /* the policy's next step */
    struct loop_timer *memory_timer;  /* the next look at the memory of the workers */
    struct loop_timer *restart_timer; /* the next look at the orphans of one worker */
    struct loop_timer *settled_timer; /* the start is over */
    struct oom_counter cgroup;
    char oom_proof[320];  /* of this round; empty: none */
    uint64_t oom_seen_ms; /* when the count was seen to have grown */
    struct orphans orphans;
    struct shm_watch shm; /* what they hold in /dev/shm */
    bool has_metrics;     /* there may be new ones */
    struct {
        bool is_set; /* workers that catch the signal are freed a moment after it */
        struct worker_group_loss of;
    } loss;
    bool has_world;     /* from the server; check whether a member still runs here */
    bool is_left_alone; /* new workers have to end: no member is left to join */
    bool has_warned_refusal; /* reported that survivors cannot be freed */
    bool has_looked;         /* the error files of all, in this pass */
};

/* ---- worker_group_reap.c ---------------------------------------------------------------- */

/* The next look at a stop, or at the orphans of a worker. */
void worker_group_on_timer(void *context);

/* ---- worker_group_stop.c ---------------------------------------------------------------- */

/* The next step of a stop that has begun. */
void worker_group_continue_stop(struct worker_group *group);

/* ---- worker_group_survivors.c ----------------------------------------------------------- */

/* Shuts down the connections of all workers to other ranks, or of the workers that catch `signal`.
 * True when a worker is freed, or was freed by the end of the lost rank. */
bool worker_group_free_survivors(struct worker_group *group, int signal,
                                 const struct worker_group_loss *loss);

/* ---- worker_group_restart.c ------------------------------------------------------------- */

/* Of the workers that have failed by now: one whose failure ends the round, `first` if its
 * failure does; NULL: each of them is started again alone. */
struct worker *worker_group_find_final(struct worker_group *group,
                                       struct worker *first);
/* False: a worker could not be started, and this was reported. */
bool worker_group_continue_restarts(struct worker_group *group);
/* No worker runs here, or will run: lost workers are not replaced, or no member is left to join. */
bool worker_group_is_over(struct worker_group *group);
/* Starts another worker in the place of each that the others continue without. */
void worker_group_replace(struct worker_group *group);
/* The restarting workers become what they were: ended by a failure of their own. */
void worker_group_give_up_restarts(struct worker_group *group);

/* ---- worker_group_memory.c -------------------------------------------------------------- */

void worker_group_on_memory(void *context);
/* Notes whether the OOM killer has ended a process since the last look. */
void worker_group_look_for_oom(struct worker_group *group);
/* "rank 0 holds 5.1 GiB, rank 3 4.2 GiB": the workers that hold more than `bytes`; cut is fine. */
void worker_group_find_larger(const struct worker_group *group, uint64_t bytes,
                              char *dst, size_t size);
