/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of this node in one round, as a unit: started together, stopped together.
 *
 *     EMPTY ──start──> RUNNING ──stop──> STOPPING ──nobody left──> EMPTY (on_gone)
 *
 * While it is RUNNING, one worker may be started again alone (restarts_alone), or be lost while the others go on
 * (survives): a loss is decided once all workers that run have asked who goes on, and nothing is left of the
 * lost one. Then another one may be started in its place (replaces): it is new, and nobody waits for it, until a
 * decision that it has asked for makes it one of them.
 *
 * The worker group is the one place that reaps: workers by their pid, adopted orphans in passing. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "agent/output/console.h"
#include "agent/process/peer_sockets.h"
#include "agent/worker/plan.h"

enum {
    WORKER_GROUP_VICTIMS_MAX_BYTES = 256
};

struct worker_socket;
struct worker_socket_progress;
struct worker_group;
struct worker;

/* What is known of the job when survivors are stopped. Its lists are borrowed until on_gone(). */
struct worker_group_loss {
    uint64_t grace_ms; /* they have before the stop, once freed; 0: none */
    struct peer_sockets_job job;
};

struct worker_group_options {
    struct loop *loop;
    const struct worker_options *workers;   /* kept */
    const struct ct_join *join;             /* kept; slots and roles of this node */
    const char *host;                       /* kept; this machine's name */
    bool is_one_node;                       /* no other can join the run */
    const char *socket;                     /* kept */
    struct worker_socket *worker_socket;    /* kept; where workers tell their crashes */
    const struct recorder_folder *recorder; /* kept; of their torch; NULL: none */
    struct console *console_out;
    struct console *console_err;
    struct console_dedup *dedup_out; /* NULL: lines are not collapsed */
    struct console_dedup *dedup_err;
    void *context;
    /* The programs of all workers run. Not called where one could not be started. */
    void (*on_started)(void *context);
    /* A worker failed on its own account (never one that we stopped). */
    void (*on_failure)(void *context, const struct ct_failure *failure);
    /* The same, where its plan says may_restart: true when it is to be started again alone. */
    bool (*restarts_alone)(void *context, const struct ct_failure *failure);
    /* Where it may not, NULL: none is survived. True when the other workers may go on without it: its failure is
     * told only if they do not. */
    bool (*survives)(void *context, const struct ct_failure *failure);
    /* With survives: fewer may be waited for now. */
    void (*on_fewer)(void *context);
    /* With survives, may be NULL: a worker that the others go on without, or one that was new and has failed,
     * is to be started again. */
    bool (*replaces)(void *context, const struct ct_failure *failure);
    /* The guard has ended the workers while this process was stopped: they have not failed, and
     * the worker group is to be stopped, if it still runs. Called before any end is seen. */
    void (*on_fenced)(void *context);
    /* All workers have ended with 0; what they left behind may still live: stop the worker group. */
    void (*on_success)(void *context);
    /* The stop that was asked for is over. `survivors` > 0: so many could not be killed. The
     * worker group's failures are still there until the next start. */
    void (*on_gone)(void *context, int survivors);
};

int worker_group_create(struct worker_group **out,
                        const struct worker_group_options *options);
void worker_group_destroy(
    struct worker_group *group); /* NULL is fine; nobody may be running */

/* Forgets the last round; nobody runs. */
void worker_group_reset(struct worker_group *group, const struct ct_start *start);
/* Workers that are started from now on get the master_addr and master_port of `start` as their worker store. */
void worker_group_move_store(struct worker_group *group, const struct ct_start *start);
/* Starts slots workers. Failures come through on_failure, before it returns. */
void worker_group_start(struct worker_group *group, const struct ct_start *start);
/* Asks all with `signal`, after grace_ms SIGKILL; then on_gone, perhaps before it returns. A
 * stop that is under way is hurried: its grace can only become shorter. */
void worker_group_stop(struct worker_group *group, int signal, uint64_t grace_ms);
/* The same because a rank or node is gone: those that wait for it in a collective have an error there,
 * where their connections can be found, and end by themselves or are asked loss->grace_ms later. */
void worker_group_stop_survivors(struct worker_group *group, int signal,
                                 uint64_t grace_ms,
                                 const struct worker_group_loss *loss);
/* A begun stop leaves the workers at least grace_ms from now. */
void worker_group_extend(struct worker_group *group, uint64_t grace_ms);
/* Passes a signal on to the workers themselves, not to their children, which a USR1 that they
 * never asked for would kill. Nothing else happens. */
void worker_group_signal(struct worker_group *group, int signal);
/* Our terminal has another size: so have the workers'. */
void worker_group_resize(struct worker_group *group);
/* True for a worker, and for a process of its session. */
bool worker_group_has_process(const struct worker_group *group, pid_t pid);
/* The rank of the worker it is, or in whose session it is; -1: of none. */
int worker_group_find_rank(const struct worker_group *group, pid_t pid);
/* The file timer `scope` of that process has run out: its worker gets `signal`. */
void worker_group_expire(struct worker_group *group, pid_t pid, const char *scope,
                         int signal);
/* The same for the worker `rank` alone; -ESRCH when it does not run here. */
int worker_group_signal_rank(struct worker_group *group, int rank, int signal);
/* KILL or STOP of ctrunctl chaos, with `target` the rank. 0, or a code and why not. */
int worker_group_inject(struct worker_group *group, const struct ct_fault *fault,
                        struct ctrun_error *err);
/* Those that a STOP has stopped until `now_ms` or earlier continue; `on_continued` is called for each. When the
 * next one is to; 0: there is none. */
uint64_t worker_group_resume(struct worker_group *group, uint64_t now_ms,
                             void (*on_continued)(void *context,
                                                  const struct worker *worker),
                             void *context);
/* logfile_writer_set_full() */
int worker_group_set_full(struct worker_group *group, bool is_full);
/* How many running workers would die of the signal, which they were not written for; they are listed:
 * "rank 3 (pid 812), rank 4 (pid 813) and 2 more". rank -1: all of this node are looked at. */
int worker_group_list_victims(const struct worker_group *group, int rank, int signal,
                              char list[WORKER_GROUP_VICTIMS_MAX_BYTES]);
/* The failure of the worker that wrote its error file first and has still to end, if that was by
 * `until_ms` (monotonic), and that did not lose another one: it is the cause of what ended since. NULL: none. Borrowed. */
const struct ct_failure *worker_group_find_raised(struct worker_group *group,
                                                  uint64_t until_ms);
/* A child of this process has ended. */
void worker_group_reap(struct worker_group *group);
/* Worker `rank` of `generation` has come so far. */
void worker_group_set_progress(struct worker_group *group, int rank,
                               uint64_t generation,
                               const struct worker_socket_progress *progress);
/* Worker `rank` of `generation` has said its first word. */
void worker_group_set_hello(struct worker_group *group, int rank, uint64_t generation);
/* Worker `local_rank` is so late in collectives, on the average: a metric of its own (CT_METRIC_LATE). */
void worker_group_set_late(struct worker_group *group, int local_rank, double seconds);
/* What workers told of themselves since the last call, as much as one message holds; false: nothing. */
bool worker_group_take_metrics(struct worker_group *group, struct ct_metrics *out);
/* What the worker that failed was working on; false: it has not told. */
bool worker_group_get_samples(const struct worker_group *group,
                              const struct ct_failure *failure, struct ct_samples *out);
/* Everything that they told in this round is new again. */
void worker_group_renew_metrics(struct worker_group *group);
/* Process `pid` of the worker `rank` waits to hear who goes on; false: that is no worker which could. */
bool worker_group_ask(struct worker_group *group, int rank, pid_t pid);
/* Once it is decided, and then it counts as told: sets the bits of those that go on, and returns how many they are;
 * *joined of them were new. 0: not yet. */
int worker_group_regroup(struct worker_group *group, uint8_t *ranks, size_t bytes,
                         int *joined);
/* Several nodes: sets the bits of those that run, and returns how many they are, where each waits to hear who goes on
 * and nothing of a lost one lives; else -1. */
int worker_group_list_still(const struct worker_group *group, uint8_t *ranks,
                            size_t bytes);
/* ... and these are told to go on. on_success where none is here. */
void worker_group_on_world(struct worker_group *group, const uint8_t *ranks,
                           size_t bytes);
/* That rank is new, or was when it ended. */
bool worker_group_is_new(const struct worker_group *group, int rank);
bool worker_group_has_new(const struct worker_group *group); /* that runs */
/* It counts as any from now on: it may be in a world that is on its way here. */
void worker_group_forget_new(struct worker_group *group, int rank);
/* That rank waits to hear who goes on, or did when it ended. */
bool worker_group_is_asking(const struct worker_group *group, int rank);
/* Ends new ones that have not asked: they may dial a worker store that is lost. Others are started for them. */
void worker_group_renew_new(struct worker_group *group);
bool worker_group_is_renewed(const struct worker_group *group, int rank);
/* Nobody is left that the new ones could join: on_success, where all others have ended well. */
void worker_group_end_new(struct worker_group *group);
/* Whether any that is not new waits to hear who goes on. */
bool worker_group_has_asked(const struct worker_group *group);
/* Shuts down the connections of all workers to other ranks (peer_sockets.h), so that none waits in a collective. */
void worker_group_cut(struct worker_group *group, const struct worker_group_loss *loss);
/* Looks soon whether somebody is to be started again: not here, where somebody is being read. */
void worker_group_look_soon(struct worker_group *group);
/* The first loss that is not decided; NULL: none. */
struct ct_failure *worker_group_find_loss(struct worker_group *group);
/* How many workers run, new ones left out; list: "1, 3 and 2 more", those of them that do not wait to hear who
 * goes on. */
int worker_group_list_late(const struct worker_group *group,
                           char list[WORKER_GROUP_VICTIMS_MAX_BYTES]);
/* The smallest step of all workers that are not lost or new; -1 when one has told none. */
int64_t worker_group_min_step(const struct worker_group *group);
/* The workers of the current or last round, by local rank; borrowed until the next start. */
int worker_group_count(const struct worker_group *group);
const struct worker *worker_group_worker(const struct worker_group *group,
                                         int local_rank);
/* Copies the ends of this round: failures, then early ends with 0, then those that we caused.
 * Returns the count. */
int worker_group_get_failures(const struct worker_group *group, struct ct_failure *out,
                              int max, struct ct_more *more);
/* How long ago it happened, to be sent now. */
void worker_group_set_age(struct ct_failure *failure);
