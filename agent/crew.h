/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of this node in one round, as a unit: started together, stopped together.
 *
 *     EMPTY ──start──> RUNNING ──stop──> STOPPING ──nobody left──> EMPTY (on_gone)
 *
 * While it is RUNNING, one worker may be started again alone (restarts_alone).
 *
 * The crew is the one place that reaps: workers by their pid, adopted orphans in passing. */
#ifndef AGENT_CREW_H
#define AGENT_CREW_H

#include <stdbool.h>
#include <sys/types.h>

#include "agent/agent.h"
#include "agent/console.h"

struct control;
struct crew;
struct worker;

struct crew_options {
    struct loop *loop;
    const struct agent_options *agent; /* kept */
    const char *socket;                /* kept */
    struct control *control;           /* kept; where workers tell their crashes */
    struct console *console_out;
    struct console *console_err;
    struct chorus *chorus_out; /* NULL: lines are not collapsed */
    struct chorus *chorus_err;
    void *context;
    /* A worker failed on its own account (never one that we stopped). */
    void (*on_failure)(void *context, const struct ct_failure *failure);
    /* The same, where its plan says may_restart: true when it is to be started again alone. */
    bool (*restarts_alone)(void *context, const struct ct_failure *failure);
    /* The guard has ended the workers while this process was stopped: they have not failed, and
     * the crew is to be stopped, if it still runs. Called before any end is seen. */
    void (*on_fenced)(void *context);
    /* All workers have ended with 0; what they left behind may still live: stop the crew. */
    void (*on_success)(void *context);
    /* The stop that was asked for is over. `survivors` > 0: so many could not be killed. The
     * crew's failures are still there until the next start. */
    void (*on_gone)(void *context, int survivors);
};

int crew_create(struct crew **out, const struct crew_options *options);
void crew_destroy(struct crew *crew); /* NULL is fine; nobody may be running */

/* Forgets the last round; nobody runs. */
void crew_reset(struct crew *crew, const struct ct_start *start);
/* Starts slots workers. Failures come through on_failure, before it returns. */
void crew_start(struct crew *crew, const struct ct_start *start);
/* Asks all with `signal`, after grace_ms SIGKILL; then on_gone, perhaps before it returns. A
 * stop that is under way is hurried: its grace can only become shorter. */
void crew_stop(struct crew *crew, int signal, uint64_t grace_ms);
/* A begun stop leaves the workers at least grace_ms from now. */
void crew_extend(struct crew *crew, uint64_t grace_ms);
/* Passes a signal on to the workers themselves, not to their children, which a USR1 that they
 * never asked for would kill. Nothing else happens. */
void crew_signal(struct crew *crew, int signal);
/* True for a worker, and for a process of its session. */
bool crew_has_process(const struct crew *crew, pid_t pid);
/* The rank of the worker it is, or in whose session it is; -1: of none. */
int crew_find_rank(const struct crew *crew, pid_t pid);
/* The file timer `scope` of that process has run out: its worker gets `signal`. */
void crew_expire(struct crew *crew, pid_t pid, const char *scope, int signal);
/* The same for the worker `rank` alone; -ESRCH when it does not run here. */
int crew_signal_rank(struct crew *crew, int rank, int signal);
/* A child of this process has ended. */
void crew_reap(struct crew *crew);
/* Worker `rank` of `generation` has finished `step`. */
void crew_set_step(struct crew *crew, int rank, uint64_t generation, int64_t step);
/* The smallest step of all workers; -1 when one has told none. */
int64_t crew_min_step(const struct crew *crew);
/* The workers of the current or last round, by local rank; borrowed until the next start. */
int crew_count(const struct crew *crew);
const struct worker *crew_worker(const struct crew *crew, int local_rank);
/* Copies the ends of this round: failures, then early ends with 0, then those that we caused.
 * Returns the count. */
int crew_get_failures(const struct crew *crew, struct ct_failure *out, int max);
/* How long ago it happened, to be sent now. */
void crew_set_age(struct ct_failure *failure);

#endif
