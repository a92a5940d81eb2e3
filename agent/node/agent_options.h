/* SPDX-License-Identifier: Apache-2.0 */
/* The options of an agent, its callbacks while it runs, and its result. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/node/restart_delay.h"
#include "agent/process/process_name.h"
#include "agent/watch/bill.h"
#include "agent/watch/job_starts.h"
#include "agent/watch/rank_load.h"
#include "agent/worker/plan.h"
#include "worker_sdk/wire/auth.h"
#include "worker_sdk/wire/message.h"

struct agent_timer;
struct hold_end;
struct own_ranks;

/* What is done before the allocation ends. */
struct agent_ending {
    int signal;
    bool is_ending;    /* it ends the run; otherwise it is only passed on */
    bool has_workers;  /* there are workers that can save */
    uint64_t left_ms;  /* time left of the allocation */
    uint64_t grace_ms; /* grace time of the workers */
};

/* How long the first start of a node's workers, a restart or a recovery took. */
struct agent_bill {
    struct bill bill;
    enum bill_of of;
    uint64_t generation; /* of the round that was started */
    uint32_t restart_count;
    bool is_whole;      /* all phases are known that earlier rounds have shown */
    int64_t lost_steps; /* bill_lost_steps() of this node's workers */
    const struct bill_rank *ranks; /* of the first start; borrowed; NULL: not known */
    int rank_count;
};

/* What was seen at a worker store. */
struct agent_store_marks {
    uint64_t met_ms;   /* torch's ranks had all counted themselves in; 0: not yet */
    uint64_t asked_ms; /* when the last request came that is no mere query; 0: none */
    uint64_t ranks;    /* torch's ranks that have counted themselves in so far */
    int last; /* which of `pids` connected last; -1: another process, or not known */
};

/* Ranks that have not connected to the worker store, although others have. */
struct agent_absent {
    uint32_t connected, world_size; /* connected 0: none is reported */
    char text[512];                 /* "rank 7 (n2), ranks 8-11 (n3)"; for people */
};

/* What happened, so that the launcher can print it and choose an exit code. */
struct agent_result {
    struct ct_verdict verdict; /* outcome, root cause first */
    int signal;                /* != 0: this signal told the agent to end */
    char sender
        [PROCESS_SENDER_MAX]; /* "SIGTERM from pid 812 (slurmstepd)"; empty: no signal came */
    char reason[128];     /* reason that ctrunctl gave for the signal; empty: none */
    int passed_signal;    /* the last one that was only passed on; 0: none */
    bool allocation_ends; /* the reason for the end, or for passed_signal */
    bool has_lost_checkpoint; /* the reason for `error` */
    bool was_at_ctrund;       /* the rendezvous server was a ctrund when it was lost */
    struct ctrun_error error; /* code != 0: the agent itself failed (rendezvous, ...) */
};

enum agent_gpu_kind {
    AGENT_GPU_FREE, /* no further word follows */
    AGENT_GPU_HELD, /* the memory is still in use */
    AGENT_GPU_LATE, /* no further word follows: the memory was in use for too long */
};

/* Comes from the descriptor of wait_for_gpus(), a SOCK_SEQPACKET socket. */
struct agent_gpu_word {
    enum agent_gpu_kind kind;
    char text[192]; /* which processes hold how much memory of which GPU */
};

/* This node's part in an etcd of the run's own (--ha). */
struct agent_ha {
    unsigned
        nodes; /* members that the user wants; 0: no etcd, and nothing below is used */
    int wake_fd; /* kept; an eventfd: the report, or the result of finds(), has changed */
    /* Fills the report for the server; `local` is our end of the connection to it, `instance` the
     * result of link_instance(). False: no report yet. */
    bool (*fill_report)(void *context, const struct ct_addr *local, uint64_t instance,
                        uint64_t generation, struct ct_ha_report *out);
    void (*on_plan)(void *context, const struct ct_ha_plan *plan);
    /* True once find_servers() can find the rendezvous server, whichever node it is on; stays
     * true. */
    bool (*finds)(void *context);
};

struct agent_options {
    struct ct_hello hello; /* run id, host, limits */
    struct ct_join join;   /* slots, role, hints; store_port is filled by the agent */
    struct worker_options workers;
    struct job_starts earlier;
    const struct ct_addr
        *server; /* candidates for the rendezvous server, tried in order */
    size_t server_count;
    bool tries_ports; /* other programs may use some of these ports: see link.h */
    /* Used instead of `server` unless NULL: where the server is now; see link.h. */
    size_t (*find_servers)(void *context, struct ct_addr *out, size_t max);
    struct agent_ha ha;                /* with find_servers; zeroed: none */
    const struct ct_auth_token *token; /* kept; NULL or empty: none */
    bool uses_munge;                   /* authenticates by MUNGE, not by a token */
    bool wants_seal;                   /* encrypts the link to the rendezvous */
    /* The rendezvous and all its nodes prove that they belong to the run, or the user says that no other program can
     * reach them. Else a new command line counts only if our own ctrunctl asked for it. */
    bool trusts_nodes;
    bool serves_rendezvous; /* in this process: while it is paused no world can start */
    uint64_t connect_timeout_ms; /* to reach any of the servers (read_timeout) */
    uint64_t grace_ms;           /* between SIGTERM and SIGKILL, for every stop */
    uint64_t survivor_grace_ms;  /* before SIGTERM, if a rank is gone; 0: none */
    /* --survive: after a worker's failure the others may continue if all have asked within this
     * time; 0: never. */
    uint64_t survive_ms;
    bool
        frees_peers; /* with it: cut the workers' connections, because their groups are not the SDK's */
    uint32_t survive_replace; /* how many lost workers may be replaced in the run */
    uint64_t signal_grace_ms; /* grace after a signal to us; 0: grace_ms */
    /* The allocation ends at end_s (seconds since 1970; 0: not known). stop_before_end_s earlier
     * the workers get end_signal as if it had come from outside, and have the rest of the time, but
     * at most end_grace_ms. stop_before_end_s 0: nothing is done. */
    int64_t end_s;
    uint64_t stop_before_end_s;
    uint64_t end_grace_ms;
    int end_signal;
    bool is_alone;        /* no other node can ever find this run */
    uint32_t given_nodes; /* by a batch system; 0: none, or not known */
    bool keeps_signals;   /* USR1 and USR2 reach the workers of this node only */
    const int *signals;   /* signals that are forwarded and then end the run */
    size_t signal_count;
    /* --collapse: the prefix of a line that several workers of this node have written alike, from
     * lists of ranks ("0-3,6"); is_teed: with the prefix of --tee. Caller frees. NULL: each
     * worker's line is shown by itself. */
    char *(*ranks_prefix)(void *context, const char *local_ranks, const char *ranks,
                          bool is_teed);
    struct restart_delay_options restart_delay;
    uint64_t hang_timeout_ms; /* longest time without a step; 0: no watch */
    bool finds_stragglers;    /* report ranks that are late in collectives */
    bool sees_start_marks;    /* of torch in workers, for on_bill */
    /* With it: fills in recent values of the GPU of each of `count` workers, zeros if unknown. Does
     * not block. May be NULL. */
    void (*look_at_gpus)(void *context, struct rank_gpu *out, int count);
    uint64_t
        stuck_limit_ms; /* uninterruptible sleep after which we leave; 0: no watch */
    const char *timer_file; /* named pipe to make and read; NULL: none */

    void *context; /* argument of the functions below */
    /* Opens a new, empty worker store and returns its port; the store is closed when its round is
     * over. */
    int (*open_store)(void *context, uint16_t *port, uint64_t *store,
                      struct ctrun_error *err);
    void (*close_store)(void *context, uint64_t store);
    /* No agent listens at master_port: a refused connection proves that the node can be reached. */
    bool master_may_refuse;
    /* Group rank 0's agent only: `met_fd` (an eventfd, kept until the store is closed) is written
     * once `world` ranks have connected; the second function reads what was seen. Both or none. */
    void (*watch_store)(void *context, uint64_t store, uint32_t world, int met_fd);
    void (*look_at_store)(void *context, uint64_t store, const pid_t *pids, int count,
                          struct agent_store_marks *out);
    /* Group rank 0's agent only: no client has used that store. NULL: not known. */
    bool (*store_is_unused)(void *context, uint64_t store);
    /* Called once if no client has used the store for own_ranks_ms (0: no check), and a worker of
     * this node has started ranks of its own, which use no CPU. May be NULL. */
    uint64_t own_ranks_ms;
    void (*on_own_ranks)(void *context, int rank, const struct own_ranks *found);
    /* Group rank 0's agent only: called once a round if no further rank has connected to the store for
     * absent_ms (0: no check). Each node's agent looks for those of its own. May be NULL. */
    uint64_t absent_ms;
    void (*on_absent)(void *context, const struct agent_absent *absent);
    /* Called once a round when `rank` has ended with 0 early_ms (0: no check) ago or more, and
     * `running` ranks of this node still run. */
    uint64_t early_ms;
    void (*on_early)(void *context, int rank, uint64_t ago_ms, int running);
    /* Group rank 0's agent only, before its START: pieces of the list of nodes that may use the
     * store. May be NULL. */
    void (*on_members)(void *context, uint64_t store, const struct ct_members *members);
    /* Before on_start: how the workers of this node reach group rank 0. start->master_addr is
     * the address that works from here, `local` our end of that connection; NULL: the world is one
     * host, or no address is known. May be NULL. */
    void (*on_reachable)(void *context, const struct ct_start *start,
                         const struct ct_addr *local);
    /* A worker whose plan says may_restart has failed, and no stop is running: true when the worker
     * is to be started again alone, in the same round; false: the failure is reported as any other.
     * NULL: never. */
    bool (*restarts_alone)(void *context, const struct ct_start *start,
                           const struct ct_failure *failure);
    /* With survive_ms: a worker has failed, or another node is lost, and `left` may continue;
     * `left` continue, after_ms later; -1: nobody was lost. */
    void (*on_rank_lost)(void *context, const struct ct_failure *failure, int left);
    void (*on_node_lost)(void *context, const char *text, int left);
    void (*on_shrunk)(void *context, int left, int64_t after_ms);
    /* With survive_replace: another worker is started in the place of a lost one, the count-th;
     * `joined` of the `size` that continue are such. */
    void (*on_replacing)(void *context, const struct ct_failure *failure,
                         uint32_t count);
    void (*on_grown)(void *context, int joined, int size);
    /* Parses a line of the file timer; 0, or a negative errno. Needed with timer_file. */
    int (*parse_timer)(void *context, const char *line, size_t length,
                       struct agent_timer *out);
    /* Before each restart: returns a descriptor, which the agent takes; words come from it until
     * the last one, within gpu_wait_ms; -1: no wait is needed. May be NULL. Each word goes to
     * on_gpu(). */
    uint64_t gpu_wait_ms;
    int (*wait_for_gpus)(void *context);
    void (*on_gpu)(void *context, const struct agent_gpu_word *word);
    /* Another command line for the workers, from the next generation on. With is_taken false it is
     * only checked. *program: a hash of the file that it executes; 0: not known. 0, or a code and
     * why this node cannot. */
    bool allows_chaos; /* ctrunctl chaos may inject faults here */
    int (*reload)(void *context, const struct ct_reload *reload, bool is_taken,
                  uint64_t *program, struct ctrun_error *err);
    /* Notices, each may be NULL: server not reached yet, every ten seconds (`why`: the last
     * attempt's error), waiting for nodes, round started, stopped, restarting. */
    void (*on_connecting)(void *context, const struct ctrun_error *why,
                          uint64_t waited_ms);
    /* The connection to the server broke: workers keep running, if any runs, and the agent
     * reconnects for up to left_ms; then on_back, or the workers' end
     * and, when an elected server is found, on_back without them. */
    void (*on_break)(void *context, const char *why, bool runs, uint64_t left_ms);
    void (*on_back)(void *context, bool keeps_workers);
    void (*on_waiting)(void *context, const struct ct_waiting *waiting,
                       uint64_t waited_ms);
    void (*on_start)(void *context, const struct ct_start *start);
    /* A checkpoint that was held in memory for a worker is on the disk, or lost. */
    void (*on_held)(void *context, const struct hold_end *end);
    /* At the end: held checkpoints are not on the disk yet, and agent_run() returns when they are, or after limit_ms. May
     * be NULL. */
    void (*on_saving)(void *context, uint64_t limit_ms);
    /* Once: hang_timeout_ms have passed, no worker here has reported a step, and none runs
     * Python. */
    void (*on_no_steps)(void *context);
    void (*on_stop)(void *context, const struct ct_stop *stop);
    /* The pause before this node joins again, after so many failures in a row. May be NULL. */
    void (*on_delay)(void *context, uint64_t delay_ms, uint32_t failures);
    /* Workers have been started; `bill` has all that will be known of how long that took. */
    void (*on_bill)(void *context, const struct agent_bill *bill);
    bool signals_are_exact; /* each signal comes once: a scheduler sends no copy */
    /* A signal came from `sender` (of signals.h): it ends the run, with `interrupts` as the number
     * of this Ctrl-C, or is passed on. May be NULL. */
    void (*on_signal)(void *context, int signal, pid_t sender, bool is_ending,
                      int interrupts);
    void (*on_allocation_end)(void *context, const struct agent_ending *ending);
    /* The first cause of the last stop as text, "" when nothing has failed. May be NULL. */
    void (*why)(void *context, char *dst, size_t size);
    /* After a signal that ends the run, every ten seconds: the rest of signal_grace_ms. */
    void (*on_countdown)(void *context, uint64_t left_ms);
    /* The limits of the run have changed. */
    void (*on_resize)(void *context, const struct ct_resize *resize);
    /* The rendezvous server is lost: the workers are being ended, and the agent looks for a server
     * for `looked_for_ms` (0: it does not look, and this node ends); a server is found, and this
     * node joins as a new one. */
    void (*on_lost)(void *context, const struct ctrun_error *why,
                    uint64_t looked_for_ms);
    void (*on_returned)(void *context);
    /* The server, a ctrund, is lost before this node's first world: the agent looks for it for up to left_ms; then
     * on_returned, or the end. May be NULL. */
    void (*on_awaited)(void *context, const struct ctrun_error *why, uint64_t left_ms);
};
