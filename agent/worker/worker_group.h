/* SPDX-License-Identifier: Apache-2.0 */
/* The workers of this node in one round, as a unit: started together, stopped together.
 *
 *     EMPTY ──start──> RUNNING ──stop──> STOPPING ──no process left──> EMPTY (on_gone)
 *
 * While the group is RUNNING, one worker may be started again alone (restarts_alone), or be lost while the others
 * continue (survives): a loss is decided once all running workers have asked who continues, and no process of the
 * lost worker is left. Then another worker may be started in its place (replaces): that worker is new, and no worker
 * waits for it until it has asked and a decision makes it a member.
 *
 * Only the worker group reaps children: workers by their pid, and adopted orphans. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "agent/output/console.h"
#include "agent/process/peer_sockets.h"
#include "agent/recorder/start_marks.h"
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
    uint64_t grace_ms; /* grace that freed survivors have before the stop; 0: none */
    struct peer_sockets_job job;
};

struct worker_group_options {
    struct loop *loop;
    const struct worker_options *workers; /* kept */
    const struct ct_join *join;           /* kept; slots and roles of this node */
    const char *host;                     /* kept; this machine's name */
    bool is_one_node;                     /* no other node can join the run */
    const char *socket;                   /* kept */
    struct worker_socket *worker_socket;  /* kept; where workers report their crashes */
    const struct recorder_folder *recorder; /* kept; of their torch; NULL: none */
    struct console *console_out;
    struct console *console_err;
    struct console_dedup *dedup_out; /* NULL: no de-duplication of lines */
    struct console_dedup *dedup_err;
    void *context;
    /* The programs of all workers run. Not called if a worker could not be started. */
    void (*on_started)(void *context);
    /* A worker failed on its own account (never one that we stopped). */
    void (*on_failure)(void *context, const struct ct_failure *failure);
    /* As on_failure, for a worker whose plan says may_restart: true when the worker is to be
     * started again alone. */
    bool (*restarts_alone)(void *context, const struct ct_failure *failure);
    /* For a worker that is not restarted alone; NULL: no loss is survived. True when the other
     * workers may continue without it: its failure is reported only if they do not. */
    bool (*survives)(void *context, const struct ct_failure *failure);
    /* With survives: fewer workers may be waited for now. */
    void (*on_fewer)(void *context);
    /* With survives, may be NULL: true when another worker is to be started for a worker that the
     * others continue without, or for a new one that failed. */
    bool (*replaces)(void *context, const struct ct_failure *failure);
    /* The guard has ended the workers while this process was stopped: the workers have not failed,
     * and the group is to be stopped, if it still runs. Called before any end is seen. */
    void (*on_fenced)(void *context);
    /* All workers have ended with 0; their orphans may still live: stop the worker group. */
    void (*on_success)(void *context);
    /* The stop is over. `survivors` > 0: so many processes could not be killed. The worker group's
     * failures stay until the next start. */
    void (*on_gone)(void *context, int survivors);
};

int worker_group_create(struct worker_group **out,
                        const struct worker_group_options *options);
void worker_group_destroy(
    struct worker_group *group); /* NULL is fine; no worker may be running */

/* Forgets the last round; no worker runs. */
void worker_group_reset(struct worker_group *group, const struct ct_start *start);
/* Workers that are started from now on get the master_addr and master_port of `start` as their worker store. */
void worker_group_move_store(struct worker_group *group, const struct ct_start *start);
/* Starts as many workers as the node has slots. Failures come through on_failure, before this
 * returns. */
void worker_group_start(struct worker_group *group, const struct ct_start *start);
/* Sends `signal` to all workers, after grace_ms SIGKILL; then on_gone, perhaps before this returns.
 * During a stop the grace can only become shorter. is_gentle: workers that ask whether they should
 * stop (ctrun_should_stop) and have no handler for the signal get it only shortly before the end of
 * the grace. */
void worker_group_stop(struct worker_group *group, int signal, uint64_t grace_ms,
                       bool is_gentle);
/* As without is_gentle, because a rank or node is gone: workers that wait for it in a collective get
 * an error there, if their connections can be found; they end by themselves, or are asked to end
 * loss->grace_ms later. */
void worker_group_stop_survivors(struct worker_group *group, int signal,
                                 uint64_t grace_ms,
                                 const struct worker_group_loss *loss);
/* Workers of a stop that has begun get at least grace_ms from now. */
void worker_group_extend(struct worker_group *group, uint64_t grace_ms);
/* Passes a signal on to the workers only, not to their children: a USR1 without a handler would
 * kill the children. Nothing else happens. */
void worker_group_signal(struct worker_group *group, int signal);
/* Passes the new size of our terminal on to the workers' terminals. */
void worker_group_resize(struct worker_group *group);
/* True for a worker, and for a process of its session. */
bool worker_group_has_process(const struct worker_group *group, pid_t pid);
/* The rank of the worker with this pid, or in whose session it is; -1: none. */
int worker_group_find_rank(const struct worker_group *group, pid_t pid);
/* The file timer `scope` of that process has run out: sends `signal` to its worker. */
void worker_group_expire(struct worker_group *group, pid_t pid, const char *scope,
                         int signal);
/* As worker_group_signal(), for the worker `rank` only; -ESRCH when it does not run here. */
int worker_group_signal_rank(struct worker_group *group, int rank, int signal);
/* KILL or STOP of ctrunctl chaos, with `target` the rank. 0, or a code and why not. */
int worker_group_inject(struct worker_group *group, const struct ct_fault *fault,
                        struct ctrun_error *err);
/* Workers that a STOP has stopped until `now_ms` or earlier continue; `on_continued` is called for
 * each. Returns when the next one has to continue; 0: none. */
uint64_t worker_group_resume(struct worker_group *group, uint64_t now_ms,
                             void (*on_continued)(void *context,
                                                  const struct worker *worker),
                             void *context);
/* logfile_writer_set_full() */
int worker_group_set_full(struct worker_group *group, bool is_full);
/* The processes of the workers can write no regular file (file_limit.h), or can again. How many were limited. */
int worker_group_set_quota(struct worker_group *group, bool is_set);
/* How many running workers the signal would kill, because they have no handler for it; lists them:
 * "rank 3 (pid 812), rank 4 (pid 813) and 2 more". rank -1: all workers of this node. */
int worker_group_list_victims(const struct worker_group *group, int rank, int signal,
                              char list[WORKER_GROUP_VICTIMS_MAX_BYTES]);
/* The failure of the worker that wrote its error file first and still runs, if it wrote by
 * `until_ms` (monotonic) and did not lose another rank: this failure is the cause of the later
 * ends. NULL: none. Borrowed. */
const struct ct_failure *worker_group_find_raised(struct worker_group *group,
                                                  uint64_t until_ms);
/* Called when a child of this process has ended. earliest: the one that ended before all others that are not reaped;
 * 0: not known, then the oldest child counts as that. */
void worker_group_reap(struct worker_group *group, pid_t earliest);
/* Worker `rank` of `generation` has reported progress. */
void worker_group_set_progress(struct worker_group *group, int rank,
                               uint64_t generation,
                               const struct worker_socket_progress *progress);
/* The first message of worker `rank` of `generation` has come. */
void worker_group_set_hello(struct worker_group *group, int rank, uint64_t generation);
/* torch in worker `pid` has come that far. True: for the first time. */
bool worker_group_set_mark(struct worker_group *group, pid_t pid, enum start_mark mark);
/* template_learn() */
void worker_group_learn(struct worker_group *group, const char *names);
/* Sets how late worker `local_rank` is in collectives on average: a metric (CT_METRIC_LATE). */
void worker_group_set_late(struct worker_group *group, int local_rank, double seconds);
/* Metrics that workers have reported since the last call, as many as one message holds; false:
 * none. */
bool worker_group_take_metrics(struct worker_group *group, struct ct_metrics *out);
/* The samples that the failed worker was working on; false: it has reported none. */
bool worker_group_get_samples(const struct worker_group *group,
                              const struct ct_failure *failure, struct ct_samples *out);
/* All metrics that workers reported in this round are sent again. */
void worker_group_renew_metrics(struct worker_group *group);
/* Process `pid` of the worker `rank` waits for the decision who continues; false: this is not a
 * worker that may ask. */
bool worker_group_ask(struct worker_group *group, int rank, pid_t pid);
/* One node: once a loss or a new worker can be decided, decides: sets the bits of the ranks that
 * continue, and returns how many; *joined of them were new. 0: not yet. */
int worker_group_regroup(struct worker_group *group, uint8_t *ranks, size_t bytes,
                         int *joined);
/* Several nodes: if each running worker waits for the decision who continues and no process of a
 * lost one lives, sets the bits of the running ranks and returns how many; else -1. */
int worker_group_list_still(const struct worker_group *group, uint8_t *ranks,
                            size_t bytes);
/* The server's decision: the ranks whose bits are set continue. Calls on_success if no worker is
 * left here. */
void worker_group_on_world(struct worker_group *group, const uint8_t *ranks,
                           size_t bytes);
/* True when that rank is new, or was new when it ended. */
bool worker_group_is_new(const struct worker_group *group, int rank);
bool worker_group_has_new(const struct worker_group *group); /* that runs */
/* That worker is no longer new: it may be in a world whose message is on its way here. */
void worker_group_forget_new(struct worker_group *group, int rank);
/* True when that rank waits for the decision who continues, or waited when it ended. */
bool worker_group_is_asking(const struct worker_group *group, int rank);
/* Ends new workers that have not asked: they may be connecting to a lost worker store. Other
 * workers are started in their place. */
void worker_group_renew_new(struct worker_group *group);
bool worker_group_is_renewed(const struct worker_group *group, int rank);
/* No member is left that new workers could join: ends them. on_success, if all others have ended
 * with 0. */
void worker_group_end_new(struct worker_group *group);
/* Whether any worker that is not new waits for the decision who continues. */
bool worker_group_has_asked(const struct worker_group *group);
/* Shuts down the connections of all workers to other ranks (peer_sockets.h), so that no worker
 * waits in a collective. */
void worker_group_cut(struct worker_group *group, const struct worker_group_loss *loss);
/* The same for the worker `rank`, which gets an error, as do the other ranks. 0, or a code and why not. */
int worker_group_sever(struct worker_group *group, int rank,
                       const struct peer_sockets_job *job, struct ctrun_error *err);
/* All workers send at most `rate` bytes a second on each connection to another rank that is open now; 0: as fast as
 * they can again. 0, or a code and why not: they have no such connection, or the kernel does not allow it. */
int worker_group_throttle(struct worker_group *group, uint32_t rate,
                          const struct peer_sockets_job *job, struct ctrun_error *err);
/* Looks soon whether a worker is to be started again: not in this call, because a worker's message
 * may be being read. */
void worker_group_look_soon(struct worker_group *group);
/* The first loss that is not decided; NULL: none. */
struct ct_failure *worker_group_find_loss(struct worker_group *group);
/* How many workers run, without new ones; list: those of them that do not wait for the decision who
 * continues, as "1, 3 and 2 more". */
int worker_group_list_late(const struct worker_group *group,
                           char list[WORKER_GROUP_VICTIMS_MAX_BYTES]);
/* The smallest step of all workers that are not lost or new; -1 when one of them has reported
 * none. */
int64_t worker_group_min_step(const struct worker_group *group);
/* The workers of the current or last round, by local rank; borrowed until the next start. */
int worker_group_count(const struct worker_group *group);
int worker_group_running_count(const struct worker_group *group);
const struct worker *worker_group_worker(const struct worker_group *group,
                                         int local_rank);
/* The processes that a running worker has started, and theirs. Their resident memory: pages that a fork
 * shares count in each. The kernel's share of each (PSS) would need a walk over all pages of all of
 * them. */
struct worker_children {
    int count;
    int64_t rss_kb;
};
/* Adds to `out`, which has one for each worker of the group. One pass over /proc. */
void worker_group_count_children(const struct worker_group *group,
                                 struct worker_children *out);
/* Copies the ends of this round: failures, then early ends with 0, then ends that we caused.
 * Returns the count. */
int worker_group_get_failures(const struct worker_group *group, struct ct_failure *out,
                              int max, struct ct_more *more);
/* Sets how long ago the failure happened; call this just before the failure is sent. */
void worker_group_set_age(struct ct_failure *failure);
