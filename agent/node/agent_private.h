/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the agent; no other file includes it.
 *
 * Each file calls only files below it:
 *
 *     agent.c             opens and closes everything, runs the loop
 *     agent_link.c        messages from the server; a link that breaks
 *     agent_request.c     requests of the user: signals and ctrunctl
 *     agent_chaos.c       faults that the user requests
 *     agent_reload.c      another command for the workers, from the next round on
 *     agent_round.c       the rounds
 *     agent_failover.c    a server that is lost, and found again; failover.h decides
 *     agent_resume.c      what is sent again after a break
 *     agent_member.c      how many nodes, and which node leaves
 *     agent_outside.c     failures before the others have accepted this node
 *     agent_join.c        JOIN for the next round
 *     agent_reachability.c  proves that group rank 0 can be reached, before workers start
 *     agent_start.c       the start of the workers
 *     agent_hang.c        workers that report no more steps
 *     agent_stuck.c       workers that report none; agent_stuck_failure.c describes what was seen
 *     agent_hang_failure.c  what is reported of any stuck worker
 *     agent_timeout.c     where the others are when a collective of a worker has timed out
 *     agent_stacks.c      stacks of this node's workers; agent_stacks_all.c: of all nodes'
 *     agent_straggler.c   the rank that the others wait for
 *     agent_slow_node.c   the node that the others wait for
 *     agent_hold.c        checkpoints that are held for workers
 *     agent_failure.c     reports a failure
 *     agent_allocation.c  the end of the time that the batch system has given
 *     agent_leave.c       this node leaves the run
 *     agent_flight.c      the last calls of workers, when one has failed
 *     agent_survive.c     a worker that is lost while the others continue
 *     agent_world.c       the same over several nodes
 *     agent_cut.c         connections of ranks that wait in a collective then
 *     agent_watch.c       workers whose timer ran out, or that the kernel does not release
 *     agent_own.c         workers that start ranks of their own
 *     agent_absent.c      ranks that do not connect to the worker store
 *     agent_signal.c      signals to the whole run; the time that is left to save
 *     agent_steps.c       the steps and metrics that workers report
 *     agent_recovery.c    how long it took until the others continued (--survive)
 *     agent_bill.c        how long a start took
 *     agent_delay.c       the pause after a failure
 *     agent_gpu.c         the wait for free GPU memory after a failure
 *     agent_dedup.c       lines that several workers write alike
 *     agent_ha.c          the run's own etcd
 *     agent_node.c        the state that agent.h draws, the stop of the workers */
#pragma once

#include "agent/node/agent_options.h"
#include "agent/control/worker_socket.h"
#include "agent/control/ctl_socket.h"
#include "agent/node/failover.h"
#include "agent/guard/fence.h"
#include "agent/hold/hold.h"
#include "agent/link/link.h"
#include "agent/link/reachability.h"
#include "agent/loop/limits.h"
#include "agent/loop/signals.h"
#include "agent/output/console_dedup.h"
#include "agent/output/console.h"
#include "agent/postmortem/oom_counter.h"
#include "agent/recorder/recorder_folder.h"
#include "agent/recorder/start_marks.h"
#include "agent/node/members.h"
#include "agent/node/signal_once.h"
#include "agent/watch/dstate_watch.h"
#include "agent/watch/file_timer.h"
#include "agent/watch/hang.h"
#include "agent/watch/live_stack.h"
#include "agent/watch/straggler.h"
#include "agent/worker/worker_group.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum agent_state {
    AGENT_CONNECTING,
    AGENT_JOINING,
    AGENT_RUNNING,
    AGENT_STOPPING,
    AGENT_SUCCEEDED, /* all workers ended with 0 or are lost; other nodes' may still run */
    AGENT_ENDED,
};

/* The bill of the current start; agent_bill.c. */
struct bill_watch {
    enum {
        BILL_IS_DONE,
        BILL_IS_STOPPED,
        BILL_IS_STARTED
    } state;
    struct agent_bill out;
    unsigned shown;    /* phases whose end was seen in an earlier round of this node */
    bool is_by_store;  /* among them BILL_IMPORT, by the worker store */
    int steppers;      /* most workers that have reported steps in one round */
    int optimizers;    /* most workers whose torch's optimizer has made one */
    int64_t last_step; /* that workers of the previous round reported; -1: none */
    struct loop_watch *met; /* NULL: no bills are wanted */
    bool has_met;           /* in the watched store of this round */
};

/* The bill of the current recovery; agent_recovery.c. */
struct recovery_watch {
    enum {
        RECOVERY_NONE,
        RECOVERY_LOST,
        RECOVERY_DECIDED
    } state;
    struct loop_timer *timer; /* NULL: no bills are wanted */
    struct agent_bill out;
    uint64_t decided_ms;
    bool awaits_step, awaits_join;
};

/* What follows a stop. A later value in this list overrules an earlier one. */
enum agent_after {
    AFTER_SUCCEED, /* only orphans had to go */
    AFTER_REJOIN,  /* report, then do what the server's STOP says */
    AFTER_RETURN,  /* the link is lost: look for the server again */
    AFTER_END,
};

struct agent {
    const struct agent_options *options;
    struct agent_result *result;
    enum agent_state state;
    enum agent_after after;
    uint32_t min_nodes, max_nodes; /* of the run: those of hello, or of a RESIZE */
    uint8_t own_keys[CT_MESSAGE_ADDRS_MAX]
                    [CT_MEMBER_KEY_BYTES]; /* of `join`, while workers stop */
    bool is_silently_lost; /* the last time the server's host did not answer either */
    bool is_gone; /* STOPPING: no worker is left, the server's decision is missing */

    struct loop *loop;
    struct console *console_out;
    struct console *console_err;     /* may be the same */
    struct console_dedup *dedup_out; /* NULL: no de-duplication of lines */
    struct console_dedup *dedup_err; /* may be the same */
    struct hold *hold;
    bool joins_later; /* once hold is idle */
    struct worker_socket *worker_socket;
    struct loop_timer *step_timer; /* a worker has reported a step lately */
    bool is_refreshing;
    struct loop_timer *metrics_timer; /* while sends_metrics */
    bool sends_metrics;               /* a worker of this round has reported metrics */
    struct ct_metrics metrics;        /* the metrics that were sent last */
    struct ctl_socket *ctl_socket;    /* NULL: ctrunctl cannot reach this run */
    struct loop_timer *drain_timer;
    struct loop_timer
        *early_timer;          /* since a worker has ended with 0 while others run */
    uint64_t early_generation; /* reported in that round */
    pid_t drained_by;          /* != 0: this ctrunctl has asked us to save and end */
    bool has_drained;          /* and the time for that is over */
    struct signals *signals;
    struct link *link;
    struct worker_group *group;
    struct file_timer *file_timer;     /* NULL: no file timer */
    struct dstate_watch *dstate_watch; /* NULL: not wanted */
    struct hang_watch *hang;           /* NULL: not wanted */
    struct recorder_folder
        *recorder; /* where torch's servers in the workers listen; NULL: nowhere */
    struct start_marks *start_marks;    /* NULL: marks of torch are not seen */
    struct stacks_request *stacks;      /* NULL: no request for stacks */
    struct stuck_watch *stuck;          /* NULL: not wanted */
    struct straggler_watch *stragglers; /* NULL: not wanted */
    struct slow_node_watch *slow_node;  /* NULL: not wanted */
    struct own_watch *own;              /* NULL: not wanted */
    struct absent_watch *absent;        /* NULL: not wanted */
    struct {                            /* ctrunctl chaos; agent_chaos.c */
        struct loop_timer
            *timer; /* until the first lasting fault ends; NULL: chaos is not allowed */
        struct {
            uint64_t until_ms; /* when the fault ends; 0: it does not last */
            uint32_t line;
        } lasting[CT_FAULT_KINDS]; /* by kind; a STOP is kept in its worker */
    } chaos;
    struct bill_watch bill;
    struct recovery_watch recovery;
    struct restart_delay delay;
    struct loop_timer *delay_timer;
    struct loop_watch *gpu_watch; /* while the agent waits for GPU memory; else NULL */
    struct loop_timer *gpu_timer;
    uint64_t round_ms; /* when its workers were started */
    struct {
        struct loop_timer
            *timer;      /* runs while a loss is not decided; NULL: not wanted */
        uint32_t losses; /* in this round, as are decisions */
        uint32_t epoch;
        uint32_t replaced;   /* replaced in the whole run */
        uint64_t generation; /* several nodes: the round of the fields below, */
        uint32_t decided;    /* losses that the last decision includes, */
        int left;            /* ranks that may continue, as far as we know, */
        uint8_t ranks[CT_WORLD_BYTES]; /* of the last world, */
        char text[192];                /* text of the last loss, */
        bool
            is_outside; /* we have the place of a lost node, and no rank of ours has been in a world, */
        bool
            has_lost_store; /* the worker store is gone, and no decision names the next, */
        struct ct_still still; /* the last STILL that was sent; generation 0: none */
        struct ct_world
            early; /* a WORLD of a round whose START has not come; generation 0: none */
        uint64_t since_ms;            /* the first loss that was not decided */
        struct loop_timer *cut_timer; /* NULL: no --survive */
        uint64_t cut_ms; /* time until the next cut, or the last such time; 0: idle */
    } survival;
    struct reachability *reachability;
    struct reachability *peers[CT_START_PEERS_MAX]; /* to those of start.peers */
    int peers_missing; /* peers that have not answered yet */
    /* "node3 cannot reach node2 on 10.1.0.2", the first in this round; empty: none. */
    char unreachable[256];
    struct ct_addr first_addr, local; /* to group rank 0: its best address; our end */
    struct loop_timer *hold_timer;
    struct ct_reachability reachability_sent; /* for its generation; 0: none */
    bool is_held; /* workers wait for the server's REACHABILITY */

    struct ct_start start;   /* of the current or last round; generation 0: none yet */
    struct ct_reload reload; /* the last command that was adopted; number 0: none */
    bool reload_waits;       /* no round has begun since */
    struct ct_reload asked_reload; /* buffer; not used after it is sent */
    char own_command
        [CT_COMMAND_MAX];      /* of the last reload that our ctrunctl asked for */
    struct ct_stop stop;       /* for start.generation; reason 0: none came */
    struct ct_failure failure; /* the last one that was reported */
    uint64_t calls_saved;      /* generation of the round whose last calls are saved */
    struct ct_failure calls;   /* only its facts: the last calls of the workers */
    struct ct_hang_view
        timeout_view; /* when a collective had timed out in this round; ranks 0: none had */
    struct ct_stopped stopped; /* the last one that was sent */
    char leave_reason[128];    /* of our LEAVE; empty: none was sent */
    struct ct_join join;       /* the last one */
    struct members members;    /* hosts of the next or current round */
    struct failover failover;
    bool has_store;
    uint64_t store;
    uint64_t lost_after_ms;
    uint64_t join_ms;
    uint64_t born_ms;
    struct ct_waiting waiting; /* the last WAITING; max_nodes 0: not waiting */
    bool awaits_server;        /* it is lost, and this node has had no world */
    bool has_warned_clock;
    int interrupts; /* Ctrl-Cs that counted */
    int last_signal;
    uint64_t last_signal_ms;
    struct signal_once once;
    struct allocation
        *allocation; /* NULL: the end is not known, or nothing is to be done */
    struct loop_watch *ha_wake; /* NULL: no --ha */
    struct ct_ha_plan ha_plan;  /* epoch 0: none came */
    uint64_t
        ha_instance; /* the etcd that the plan is of, once it is active; 0: unknown */
    bool finds;      /* another node may become the server, and we can find it */
    struct loop_timer *countdown;
    uint64_t grace_deadline_ms; /* when this node has to end */
};

/* --hang-timeout; agent_hang.c. */
struct hang_watch {
    struct agent *agent;
    struct loop_timer *timer;
    struct stacks *stacks;
    struct ct_failure
        failure; /* our failure, reported once the stacks are saved; cause NONE: not ours */
    struct ct_hang_view
        view; /* when a stuck rank was reported in this round; ranks 0: none was */
    struct hang_rank ranks[AGENT_WORKERS_MAX]; /* what list_ranks() found last */
    int local[AGENT_WORKERS_MAX];              /* their local ranks */
};

/* ---- agent_node.c ----------------------------------------------------------------------- */

/* Ends the search for group rank 0's address, and no workers are started after it; harmless when
 * idle. */
void agent_cancel_reachability(struct agent *agent);
/* The others continue without any worker of this node (--survive). */
bool agent_has_lost_all(const struct agent *agent);
const char *agent_state_name(const struct agent *agent);
void agent_set_state(struct agent *agent, enum agent_state state, const char *why);
/* The round runs, and nothing has begun to end it. While workers are stopped, the saving of
 * evidence would look like progress. */
static inline bool agent_is_undisturbed(const struct agent *agent)
{
    return agent->state == AGENT_RUNNING && agent->drained_by == 0 &&
           agent->stop.reason == 0;
}
/* All ranks of the world run the same program, as far as their roles say. */
static inline bool agent_has_one_role(const struct agent *agent)
{
    return agent->start.role_world_size == agent->start.world_size;
}
void agent_end(struct agent *agent, const char *why);
/* Ends because the agent cannot continue. The first reason is kept. */
void agent_fail(struct agent *agent, const struct ctrun_error *why);
/* Every stop of running workers goes through here. */
void agent_stop(struct agent *agent, enum agent_after after, int signal,
                uint64_t grace_ms, const char *why);
/* Which connections are those to other ranks; points into the agent. */
void agent_fill_job(struct agent *agent, struct peer_sockets_job *job);
/* As agent_stop() with SIGTERM, because a rank or node is gone; survivor_ms before SIGTERM. */
void agent_stop_survivors(struct agent *agent, enum agent_after after,
                          uint64_t survivor_ms, uint64_t grace_ms, const char *why);
void agent_close_store(struct agent *agent);
void agent_send_leave(struct agent *agent, const char *why);
/* Our answer to a STOP: it proves that this node was not lost before. */
void agent_send_stopping(struct agent *agent);
void agent_send_stopped(struct agent *agent);
void agent_send_succeeded(struct agent *agent);
/* "round_started", "round_stopped": of the current or last round. */
void agent_emit_round(const struct agent *agent, const char *name);

/* ---- agent_join.c ----------------------------------------------------------------------- */

/* Joins the next round, with a new store, so that no rank reads keys of an old one. */
void agent_join(struct agent *agent);
/* Sends the last JOIN, perhaps again. */
void agent_send_join(struct agent *agent);
void agent_on_waiting(struct agent *agent, const struct ct_waiting *waiting);

/* ---- agent_outside.c -------------------------------------------------------------------- */

/* While agent_is_outside(): stops the workers, and ends the agent with an error that contains
 * `why`. */
void agent_stop_outside(struct agent *agent, const char *why);
/* A worker failed, or something that they all need. True: this agent ends for it; the failure must
 * not be reported, because the server would stop the other nodes, too. */
bool agent_fails_outside(struct agent *agent, const struct ct_failure *failure);

/* ---- agent_round.c ---------------------------------------------------------------------- */

/* Messages of the server. */
void agent_on_start(struct agent *agent, const struct ct_start *start);
void agent_on_stop(struct agent *agent, const struct ct_stop *message);
void agent_on_verdict(struct agent *agent, const struct ct_verdict *verdict);
int agent_open_worker_group(struct agent *agent, struct ctrun_error *err);

/* ---- agent_failure.c -------------------------------------------------------------------- */

/* Sends `agent->failure` to the server, with its age of now. */
void agent_send_failure(struct agent *agent);
/* Sends the server a failure of a worker, or of something that they all need. */
void agent_report_failure(struct agent *agent, const struct ct_failure *failure);
/* The same for the worker that failed first and has not ended yet, if there is one. */
void agent_send_raised(struct agent *agent);
/* Adds that this node could not reach another one, if the rank may have waited for such a one. */
void agent_add_unreachable(const struct agent *agent, struct ct_failure *failure);

/* ---- agent_flight.c --------------------------------------------------------------------- */

/* Once a round, at its first failure: finds each worker's last call, and writes all calls to
 * files. */
void agent_save_calls(struct agent *agent);
/* The path of NAME.nodeN.SUFFIX beside the folders of the workers of this round; false: there are none. */
bool agent_make_round_path(char *dst, size_t size, const struct agent *agent,
                           const char *name, const char *suffix);
/* Writes a new file, or a new content. May block. 0 or -errno. */
int agent_write_evidence(const char *path, const struct ct_buf *bytes);
/* Adds the workers' last calls to a failure of this round. */
void agent_add_calls(const struct agent *agent, struct ct_failure *failure);

/* ---- agent_survive.c -------------------------------------------------------------------- */

/* Callbacks of struct worker_group_options and worker_socket_options; context: struct agent. */
bool agent_survives(void *context, const struct ct_failure *failure);
bool agent_replaces(void *context, const struct ct_failure *failure);
void agent_on_fewer(void *context);
bool agent_on_ask(void *context, int rank, uint64_t generation, pid_t pid);
int agent_open_survival(struct agent *agent, struct ctrun_error *err);
/* A round begins. */
void agent_begin_survival(struct agent *agent);

/* ---- agent_world.c ---------------------------------------------------------------------- */

/* Whether the server decides which ranks continue, and not this agent alone. */
static inline bool agent_shares_world(const struct agent *agent)
{
    return agent->options->hello.max_nodes > 1;
}

/* A worker of ours is lost; false: the others cannot continue. */
bool agent_lose_rank(struct agent *agent, const struct ct_failure *failure);
/* Perhaps no worker has to be waited for any more: sends STILL then. */
void agent_send_still(struct agent *agent);
/* Sends the messages of --survive again after a broken connection. */
void agent_send_survival_again(struct agent *agent);
/* The workers of a round are about to be started. */
void agent_begin_world(struct agent *agent);
void agent_on_loss(struct agent *agent, const struct ct_loss *message);
void agent_on_world(struct agent *agent, const struct ct_world *message);
/* A worker of ours that is in no world waits to join the next; the second function: a worker of any
 * node does. */
void agent_send_grow(struct agent *agent, int rank);
void agent_on_grow(struct agent *agent, const struct ct_grow *message);
/* This node has the place of a lost node, and others continue in a world that has none of this
 * node's ranks yet. */
bool agent_is_outside(struct agent *agent);
/* There is a loss that the last world does not include. */
bool agent_is_undecided(const struct agent *agent);
/* Events and notices: a worker of ours is lost and `left` may continue; so many continue. */
void agent_report_lost(struct agent *agent, const struct ct_failure *failure, int left);
void agent_report_shrunk(struct agent *agent, int left, int64_t after_ms);
void agent_report_grown(struct agent *agent, int joined, int size);

/* ---- agent_cut.c ------------------------------------------------------------------------ */

/* These functions have an effect only with --survive=torch, or if the worker store is lost. Call
 * when a rank is lost; when a rank asks who continues; when that is decided, or a round begins. */
void agent_cut_now(struct agent *agent);
void agent_cut_soon(struct agent *agent);
void agent_stop_cutting(struct agent *agent);
int agent_open_cutting(struct agent *agent);

/* ---- agent_steps.c ---------------------------------------------------------------------- */

/* Reads from the workers' shared pages how far they are. */
void agent_refresh_steps(struct agent *agent);
int agent_open_worker_socket(struct agent *agent, struct ctrun_error *err);

/* ---- agent_bill.c ----------------------------------------------------------------------- */

/* The functions below do nothing if no bills are wanted. */
int agent_open_bill(struct agent *agent, struct ctrun_error *err);
void agent_close_bill(struct agent *agent);
/* The workers are about to be stopped: the bill of their start ends. is_end: no workers follow. */
void agent_bill_stop(struct agent *agent, bool is_end);
/* That phase ends now: BILL_DECIDE, BILL_STOP, BILL_MEET, BILL_START. */
void agent_bill_end_phase(struct agent *agent, enum bill_phase phase);
/* The last step that a worker of this round has reported; -1: none. */
int64_t agent_last_step(const struct agent *agent);
/* A worker has sent its first message, or a step. */
void agent_bill_look(struct agent *agent);
/* torch in worker `pid` has come that far; a start_marks_fn, context: the agent. */
void agent_on_start_mark(void *context, pid_t pid, enum start_mark mark,
                         const char *names);
/* Emits an event for a bill that is complete, and hands the bill to the launcher. */
void agent_send_bill(struct agent *agent, const struct agent_bill *of);

/* ---- agent_recovery.c ------------------------------------------------------------------- */

/* The functions below do nothing without --survive, or if no bills are wanted. */
int agent_open_recovery(struct agent *agent, struct ctrun_error *err);
void agent_close_recovery(struct agent *agent);
/* A member is lost; its failure, NULL for another node's. */
void agent_recovery_lose(struct agent *agent, const struct ct_failure *failure);
/* It is decided who continues. */
void agent_recovery_decide(struct agent *agent);
/* A new worker has joined them. */
void agent_recovery_join(struct agent *agent);
/* The workers are about to be stopped. */
void agent_recovery_stop(struct agent *agent);

/* ---- agent_delay.c ---------------------------------------------------------------------- */

/* agent_join(), at once or after --restart-delay and --gpu-wait. */
void agent_join_later(struct agent *agent);
int agent_open_delay(struct agent *agent, struct ctrun_error *err);

/* ---- agent_gpu.c ------------------------------------------------------------------------ */

/* agent_join(), at once or when the memory of the GPUs is free. */
void agent_join_when_free(struct agent *agent);
void agent_close_gpu(struct agent *agent);

/* ---- agent_signal.c --------------------------------------------------------------------- */

/* To our workers and, unless signals are local, to those of the other nodes. */
void agent_pass_on(struct agent *agent, int signal);
void agent_on_signal(struct agent *agent, const struct ct_signal *message);
uint64_t agent_signal_grace_ms(const struct agent *agent);
void agent_begin_countdown(struct agent *agent, uint64_t grace_ms);
int agent_open_countdown(struct agent *agent, struct ctrun_error *err);

/* ---- agent_leave.c ---------------------------------------------------------------------- */

/* This node cannot take part any more: tells the server, and ends when its workers have ended. */
void agent_give_up(struct agent *agent, const struct ctrun_error *why);
/* True for a signal in --signals-to-handle. */
bool agent_is_ending_signal(const struct agent *agent, int signal);
/* As after a signal that ends the run, but all workers are gone after grace_ms at the latest. */
void agent_end_in_time(struct agent *agent, int signal, uint64_t grace_ms,
                       const char *why);
/* The first ending signal, or a further Ctrl-C. */
void agent_end_by_signal(struct agent *agent, int signal, pid_t sender);
/* Workers that use the worker socket get the grace time to save and leave; others get only
 * SIGTERM. */
void agent_drain(struct agent *agent, const char *reason, pid_t sender);
/* The workers have saved, or are out of time: a SIGTERM follows like any other. context: struct
 * agent. */
void agent_drained(void *context);
/* Emits the event of a ctrunctl request. reason: what the user gave; may be empty. */
void agent_emit_request(const char *verb, int signal, int rank, const char *reason,
                        pid_t sender);

/* ---- agent_failover.c ------------------------------------------------------------------- */

/* A server accepts this node as a new one: the node joins as soon as no worker runs here any
 * more. */
void agent_on_welcomed(struct agent *agent);
/* The link is down: the agent looks for another server, waits for this one, or ends. */
void agent_on_lost(struct agent *agent, const struct ctrun_error *why);
/* The last worker of a stopped round is gone. True: the server was lost meanwhile, and this
 * function has handled it: the node continues as a new one, or ends after a search without
 * success. */
bool agent_goes_on_when_gone(struct agent *agent);
/* context: struct agent; see link.h. */
void agent_on_break(void *context, const struct ctrun_error *why, uint64_t left_ms);
void agent_on_resumed(void *context, const struct ct_resumed *resumed);

/* ---- agent_resume.c --------------------------------------------------------------------- */

/* context: struct agent; see link.h. */
uint8_t agent_get_resume_state(void *context);
/* Sends what may be lost because there was no connection. */
void agent_send_again(struct agent *agent, const struct ct_resumed *resumed);

/* ---- agent_member.c --------------------------------------------------------------------- */

void agent_on_resize(struct agent *agent, const struct ct_resize *message);
void agent_on_drain(struct agent *agent, const struct ct_drain *message);
/* Refuses a request at once if there is no connection: a request that is carried out minutes later
 * would surprise the user. */
int agent_need_link(const struct agent *agent, struct ctrun_error *err);
/* Sends the answer to the ctrunctl that asked. */
void agent_on_restart(struct agent *agent, const struct ct_restart *message);
/* The root cause was working on the same samples as an earlier one. */
void agent_note_samples(const struct ct_stop *stop);
/* The round is stopped because a user asked for a new one. */
void agent_note_restart(const struct ct_stop *stop);
/* For ctrunctl; context: struct agent. */
/* ctrunctl stacks: 0, and the answer comes by the ticket; or a code. rank -1: of all nodes. */
int agent_show_stacks(void *context, int rank, uint32_t ticket,
                      struct ctrun_error *err);
/* Another node asks, or answers. */
void agent_on_stacks(struct agent *agent, const struct ct_stacks *message);
void agent_close_stacks(struct agent *agent);
/* Appends where workers of this node are: how many, or a code. rank -1: all of them. Blocks for limit_ms at
 * most. */
int agent_write_stacks(const struct agent *agent, int rank, uint64_t limit_ms,
                       struct ct_buf *out, struct ctrun_error *err);
enum {
    AGENT_PLACE_MAX = LIVE_PLACE_MAX
};
struct agent_place {
    int rank;
    pid_t pid;
    struct live_place at;
};
/* Looks at due_ms (monotonic) where these workers are. False: nothing is known after limit_ms. */
bool agent_find_places(struct agent_place *list, int count, uint64_t due_ms,
                       uint64_t limit_ms);
/* live_stack_find_place(), with a limit of a fifth of a second; empty also when the limit is
 * reached. */
void agent_find_place(char dst[AGENT_PLACE_MAX], pid_t pid);
int agent_ask_resize(void *context, uint32_t min_nodes, uint32_t max_nodes,
                     struct ct_buf *out, struct ctrun_error *err);
int agent_ask_drain(void *context, const char *words, uint32_t ticket,
                    struct ctrun_error *err);
int agent_ask_restart(void *context, const char *reason, uint32_t ticket,
                      struct ctrun_error *err);

/* ---- agent_reload.c --------------------------------------------------------------------- */

/* For ctrunctl. */
int agent_ask_reload(struct agent *agent, const char *command, uint32_t ticket,
                     struct ctrun_error *err);
void agent_on_reload(struct agent *agent, const struct ct_reload *message);
/* Sends the adopted command to a server that may be new. Nothing if there is none. */
void agent_send_reload(struct agent *agent);

/* ---- agent_chaos.c ---------------------------------------------------------------------- */

int agent_open_chaos(struct agent *agent, struct ctrun_error *err);
/* For ctrunctl; `text` is the line of the plan. 1: the answer comes by the ticket; 0: injected; or
 * a code. */
int agent_ask_chaos(struct agent *agent, const struct ct_fault *fault, const char *text,
                    uint32_t ticket, struct ctrun_error *err);
/* Another node asks, or answers. */
void agent_on_chaos(struct agent *agent, const struct ct_chaos *message);

/* ---- The others ------------------------------------------------------------------------- */

/* Call after the consoles are open; nothing without --collapse. */
int agent_open_dedup(struct agent *agent, struct ctrun_error *err);
/* Sends waiting lines to the consoles; is_end: later lines go there at once, too. */
void agent_flush_dedup(struct agent *agent, bool is_end);
void agent_close_dedup(struct agent *agent);
int agent_open_link(struct agent *agent, struct ctrun_error *err);
int agent_open_reachability(struct agent *agent, struct ctrun_error *err);
void agent_close_reachability(struct agent *agent);
/* Finds out how the workers of this round reach group rank 0, then agent_start_workers(). */
void agent_find_reachability(struct agent *agent);
/* Sends the result again; nothing if there is none yet. */
void agent_send_reachability(struct agent *agent);
void agent_on_reachability(struct agent *agent, const struct ct_reachability *theirs);
/* True if another server may take this one's place, and find_servers() can find it. */
bool agent_may_find(const struct agent *agent);
/* For the link: the callback of options.h, whose context it has. context: the agent. */
size_t agent_find_servers(void *context, struct ct_addr *out, size_t max);
/* Reports this node's part in the run's own etcd; nothing without one. */
void agent_report_ha(struct agent *agent);
void agent_on_ha_plan(struct agent *agent, const struct ct_ha_plan *plan);
int agent_open_ha(struct agent *agent, struct ctrun_error *err);
void agent_close_ha(struct agent *agent);
int agent_open_allocation(struct agent *agent, struct ctrun_error *err);
int agent_open_signals(struct agent *agent, struct ctrun_error *err);
/* Never fatal: the run does not need it. */
void agent_open_ctl_socket(struct agent *agent);
/* The stop is for a stuck rank: stacks are saved first, and then the workers are stopped. */
bool agent_saves_stacks(struct agent *agent, const struct ct_stop *stop);
/* For the same stop: reports a rank of this node that is further behind than the reported one,
 * before the answer. */
bool agent_send_worse(struct agent *agent, const struct ct_stop *stop);
/* The address of group rank 0 is known, or not needed: starts the workers. */
void agent_start_workers(struct agent *agent);
void agent_start_own(struct agent *agent);
void agent_stop_own(struct agent *agent);
int agent_open_own(struct agent *agent, struct ctrun_error *err);
void agent_close_own(struct agent *agent);
/* What is reported now, at group rank 0; NULL: nothing. Borrowed until the loop runs on. */
const struct agent_absent *agent_absent(const struct agent *agent);
void agent_on_absent(struct agent *agent, const struct ct_absent *message);
void agent_start_absent(struct agent *agent);
int agent_open_absent(struct agent *agent, struct ctrun_error *err);
void agent_close_absent(struct agent *agent);
/* Reports a worker that has ended with 0 while others run on, now or once the limit is over. Called
 * after each end. context: the agent. */
void agent_look_early(void *context);
/* Path of a file `name` beside the worker's log files; false if there are none. */
bool agent_make_evidence_path(char *dst, size_t size, const struct worker *worker,
                              const char *name);
void agent_start_hang(struct agent *agent);
/* Where torch's servers in the workers listen; NULL: nowhere. */
const struct recorder_folder *agent_recorder(const struct agent *agent);
int agent_open_hold(struct agent *agent, struct ctrun_error *err);
/* Makes a run an error that has succeeded, but has lost the last checkpoint of one of its ranks. */
void agent_check_hold(struct agent *agent);
int agent_open_hang(struct agent *agent, struct ctrun_error *err);
void agent_close_hang(struct agent *agent);

/* ---- agent_hang_failure.c ---------------------------------------------------------------- */

/* Fills the failure of a stuck worker, without what was seen of it; its step is unknown (-1). */
void agent_begin_hang(struct ct_failure *out, const struct agent *agent,
                      const struct worker *worker);
/* Adds what can be done; nothing if the worker only waits for ranks as all of its node do. */
void agent_add_pause(struct ct_failure *out, const struct agent *agent,
                     bool only_waits);

/* ---- agent_timeout.c --------------------------------------------------------------------- */

/* If `failure` says that a rank waited for another one, which has not ended: looks where the ranks of this node are
 * that still run, saves their stacks, and says which ones were in no collective. `own`, unless it is NULL,
 * gets this as facts. Call before the workers are stopped; blocks for TIMEOUT_LOOK_MS at most. */
void agent_look_after_timeout(struct agent *agent, const struct ct_failure *failure,
                              struct ct_failure *own);

/* ---- agent_stuck.c ---------------------------------------------------------------------- */

/* The failure is of a rank that reports no steps. */
bool agent_is_stuck_failure(const struct ct_failure *failure);
/* Another node has reported `theirs`: fills in the failure of a rank of this node for which the
 * others more probably wait. False: there is none. */
bool agent_find_more_stuck(struct agent *agent, const struct ct_failure *theirs,
                           struct ct_failure *out);
/* At the last look at this node the worker waited for others. */
bool agent_stuck_waits(const struct agent *agent, int local_rank);
/* The answer of its flight recorder at that look: the caller frees it. NULL: none. */
char *agent_take_dump(const struct agent *agent, int local_rank);
/* Call before and after other code asks the workers: the work of answering is no progress. */
void agent_settle_look(struct agent *agent);
void agent_discount_look(struct agent *agent);
void agent_start_stuck(struct agent *agent);
int agent_open_stuck(struct agent *agent, struct ctrun_error *err);
void agent_close_stuck(struct agent *agent);

/* ---- agent_straggler.c ------------------------------------------------------------------ */

/* The rank that is reported now; NULL: none. Borrowed until the loop runs on. */
const struct straggler_report *agent_straggler(const struct agent *agent);
void agent_start_stragglers(struct agent *agent);
int agent_open_stragglers(struct agent *agent, struct ctrun_error *err);
void agent_close_stragglers(struct agent *agent);

/* ---- agent_slow_node.c ------------------------------------------------------------------ */

/* The node that is reported now, at group rank 0; NULL: none. Borrowed until the loop runs on. */
const struct straggler_report *agent_slow_node(const struct agent *agent);
void agent_on_calls(struct agent *agent, const struct ct_calls *message);
void agent_on_clock(struct agent *agent, const struct ct_clock *message);
/* The server may be another one, with another clock. */
void agent_start_slow_node(struct agent *agent);

int agent_open_file_timer(struct agent *agent, struct ctrun_error *err);
int agent_open_dstate_watch(struct agent *agent, struct ctrun_error *err);
