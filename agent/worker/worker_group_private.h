/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the worker group share; nobody else includes it.
 *
 * Each needs only those below it:
 *
 *     worker_group.c          the start, the facts
 *     worker_group_reap.c     the ends, and all timers but that of the memory
 *     worker_group_survivors.c  the stop of those that may wait for one that is gone
 *     worker_group_stop.c     the stop of all
 *     worker_group_restart.c  a worker that is started again alone, or is lost alone
 *     worker_group_lost.c     who goes on without it
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
    struct reap_keep keep; /* in a stop: the template, which stays */
    struct logfile_writer *files;
    struct policy policy;
    struct loop_timer *timer;         /* the policy's next look */
    struct loop_timer *memory_timer;  /* the next look at the memory of the workers */
    struct loop_timer *restart_timer; /* the next look at what one has left behind */
    struct oom_counter cgroup;
    char oom_proof[320]; /* of this round; empty: none */
    struct orphans orphans;
    struct shm_watch shm; /* what they hold in /dev/shm */
    bool has_metrics;     /* there may be new ones */
    struct {
        bool is_set; /* who catches the signal is to be freed, a moment after it */
        struct worker_group_loss of;
    } loss;
    bool
        has_world; /* told by other nodes; whether anybody of it runs here is to be looked at */
    bool is_left_alone;      /* its new workers: nobody whom they could join is left */
    bool has_warned_refusal; /* that survivors cannot be freed */
    bool has_looked;         /* at the error files of all, in this pass */
};

/* ---- worker_group_reap.c ---------------------------------------------------------------- */

/* The next look at a stop, or at what somebody has left behind. */
void worker_group_on_timer(void *context);

/* ---- worker_group_stop.c ---------------------------------------------------------------- */

/* The next step of a stop that is under way. */
void worker_group_continue_stop(struct worker_group *group);

/* ---- worker_group_survivors.c ----------------------------------------------------------- */

/* Shuts down the connections of all workers to other ranks, or of those that catch `signal`. True when
 * somebody is freed, or had been by the end of who is gone. */
bool worker_group_free_survivors(struct worker_group *group, int signal,
                                 const struct worker_group_loss *loss);

/* ---- worker_group_restart.c ------------------------------------------------------------- */

/* Of those that have failed by now: one whose failure is everybody's, `first` if it is not only
 * one's own; NULL: each of them is started again alone. */
struct worker *worker_group_find_final(struct worker_group *group,
                                       struct worker *first);
/* False: one could not be started, which was told. */
bool worker_group_continue_restarts(struct worker_group *group);
/* Nobody is at work here, nor will be: whoever is lost is not replaced, or nobody is left to join. */
bool worker_group_is_over(struct worker_group *group);
/* Starts another one in the place of each that the others go on without. */
void worker_group_replace(struct worker_group *group);
/* They stay what they are: ended by a failure of their own. */
void worker_group_give_up_restarts(struct worker_group *group);

/* ---- worker_group_memory.c -------------------------------------------------------------- */

void worker_group_on_memory(void *context);
/* "rank 0 holds 5.1 GiB, rank 3 4.2 GiB": who has more than `bytes`; cut is fine. */
void worker_group_find_larger(const struct worker_group *group, uint64_t bytes,
                              char *dst, size_t size);
