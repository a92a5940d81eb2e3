/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent is told, what it tells while it runs, and what it returns. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/node/restart_delay.h"
#include "agent/watch/bill.h"
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
    bool is_ending;    /* it ends the run; else it is only passed on */
    bool has_workers;  /* some run that can save */
    uint64_t left_ms;  /* of the allocation */
    uint64_t grace_ms; /* for the workers */
};

/* What the first start of a node's workers cost, or a restart. */
struct agent_bill {
    struct bill bill;
    bool is_restart;
    uint64_t generation; /* of the round that was started */
    uint32_t restart_count;
    bool is_whole;      /* it goes as far as the rounds before have shown that it can */
    int64_t lost_steps; /* bill_lost_steps() of this node's workers */
};

/* What a worker store has seen. */
struct agent_store_marks {
    uint64_t met_ms;   /* torch's ranks had all counted themselves in; 0: not yet */
    uint64_t asked_ms; /* the last request that was more than a look; 0: none was */
    int last; /* which of `pids` was the last to meet; -1: another one, or not told */
};

/* What happened, for the launcher to print and to map to an exit code. */
struct agent_result {
    struct ct_verdict verdict; /* outcome, root cause first */
    bool is_mid_line;          /* a worker left a line on stderr unfinished */
    int signal;                /* != 0: we were told to end by this signal */
    char reason[128];          /* that ctrunctl gave for it; empty: none */
    int passed_signal;         /* the last one that was only passed on; 0: none */
    bool allocation_ends;      /* that is why, or why it was passed on */
    struct ctrun_error error; /* code != 0: the agent itself failed (rendezvous, ...) */
};

enum agent_gpu_kind {
    AGENT_GPU_FREE, /* the last word */
    AGENT_GPU_HELD, /* it is being waited for */
    AGENT_GPU_LATE, /* the last word: it was for too long */
};

/* What comes from the descriptor of wait_for_gpus(), a SOCK_SEQPACKET socket. */
struct agent_gpu_word {
    enum agent_gpu_kind kind;
    char text[192]; /* who holds how much of which GPU */
};

/* This node's part in an etcd of the run's own (--ha). */
struct agent_ha {
    unsigned
        nodes; /* members that are wanted; 0: there is none, and nothing below is used */
    int wake_fd; /* kept; an eventfd: the report, or what finds() says, has changed */
    /* What the server is to know; `local` is our end of the connection to it, and the rest is what
     * link_instance() says. False: nothing yet. */
    bool (*fill_report)(void *context, const struct ct_addr *local, uint64_t instance,
                        uint64_t generation, struct ct_ha_report *out);
    void (*on_plan)(void *context, const struct ct_ha_plan *plan);
    /* True once find_servers() knows where the rendezvous is, whoever serves; for good. */
    bool (*finds)(void *context);
};

struct agent_options {
    struct ct_hello hello; /* run id, host, limits */
    struct ct_join join;   /* slots, role, hints; store_port is filled by the agent */
    struct worker_options workers;
    const struct ct_addr
        *server; /* candidates for the rendezvous server, tried in order */
    size_t server_count;
    bool tries_ports; /* others may have some of these ports: see link.h */
    /* Instead of these, unless NULL: where it is now; see link.h. */
    size_t (*find_servers)(void *context, struct ct_addr *out, size_t max);
    struct agent_ha ha;                /* with find_servers; zeroed: none */
    const struct ct_auth_token *token; /* kept; NULL or empty: none */
    bool uses_munge;                   /* proves itself so, instead of by a token */
    bool wants_seal;                   /* encrypts the link to the rendezvous */
    bool
        serves_rendezvous; /* in this process: while we are paused nobody can start a world */
    uint64_t connect_timeout_ms; /* to reach any of them (read_timeout) */
    uint64_t grace_ms;           /* between SIGTERM and SIGKILL, every stop alike */
    uint64_t survivor_grace_ms;  /* before that, where a rank is gone; 0: none */
    /* --survive: when a worker fails the others may go on, where all have asked how within this time; 0:
     * never. */
    uint64_t survive_ms;
    bool
        frees_peers; /* with it: their connections to each other are shut down, for their groups are not the SDK's */
    uint32_t survive_replace; /* so many lost workers are started again, in the run */
    uint64_t signal_grace_ms; /* but after a signal to us; 0: the same */
    /* The allocation ends at end_s (seconds since 1970; 0: not known); so long before, the workers
     * get end_signal as if it had come from outside, and have what is left of the time then, but
     * at most end_grace_ms. stop_before_end_s 0: nothing is done. */
    int64_t end_s;
    uint64_t stop_before_end_s;
    uint64_t end_grace_ms;
    int end_signal;
    bool is_alone;      /* no other node can ever find this run */
    bool keeps_signals; /* USR1 and USR2 reach the workers of this node only */
    const int *signals; /* signals to forward and end by */
    size_t signal_count;
    /* --collapse: what stands in front of a line that several workers of this node have written
     * alike, given as lists ("0-3,6"); is_teed: where --tee puts a prefix. Caller frees. NULL:
     * each worker's line is shown by itself. */
    char *(*ranks_prefix)(void *context, const char *local_ranks, const char *ranks,
                          bool is_teed);
    struct restart_delay_options restart_delay;
    uint64_t hang_timeout_ms; /* without a step; 0: nobody looks */
    bool finds_stragglers;    /* who is late in collectives */
    /* With it: fills in what was known lately of the GPU of each of `count` workers, zeros where nothing is. Does not
     * block. May be NULL. */
    void (*look_at_gpus)(void *context, struct rank_gpu *out, int count);
    uint64_t
        stuck_limit_ms; /* in uninterruptible sleep: then we leave; 0: not looked at */
    const char *timer_file; /* named pipe to make and read; NULL: none */

    void *context; /* given to the functions below */
    /* Opens a new, empty worker store and tells its port; closed when its round is over. */
    int (*open_store)(void *context, uint16_t *port, uint64_t *store,
                      struct ctrun_error *err);
    void (*close_store)(void *context, uint64_t store);
    /* No agent serves at master_port: a connection that is refused proves that the node can be reached. */
    bool master_may_refuse;
    /* Group rank 0's agent only: `met_fd` (an eventfd, kept until the store is closed) is written
     * once `world` ranks have met in it; and what it has seen. Both or none. */
    void (*watch_store)(void *context, uint64_t store, uint32_t world, int met_fd);
    void (*look_at_store)(void *context, uint64_t store, const pid_t *pids, int count,
                          struct agent_store_marks *out);
    /* Group rank 0's agent only: nobody has asked that store anything. NULL: not known. */
    bool (*store_is_unused)(void *context, uint64_t store);
    /* A store that nobody has used for own_ranks_ms (0: not looked at), and a worker of this node has
     * started ranks of its own, which use no CPU. Once. May be NULL. */
    uint64_t own_ranks_ms;
    void (*on_own_ranks)(void *context, int rank, const struct own_ranks *found);
    /* Group rank 0's agent only, before its START: pieces of the list of who may use the store.
     * May be NULL. */
    void (*on_members)(void *context, uint64_t store, const struct ct_members *members);
    /* Before on_start: how the workers of this node reach group rank 0. start->master_addr is
     * the address that works from here, `local` our end of that connection; NULL: the world is one
     * host, or no address is known. May be NULL. */
    void (*on_reachable)(void *context, const struct ct_start *start,
                         const struct ct_addr *local);
    /* A worker whose plan says may_restart has failed, and nothing is being stopped: true when it
     * is to be started again alone, in the same round; false: its failure is told as any
     * other's. May be NULL: none is. */
    bool (*restarts_alone)(void *context, const struct ct_start *start,
                           const struct ct_failure *failure);
    /* With survive_ms: a worker has failed, or another node is lost, and `left` may go on; so many go on,
     * after_ms later. */
    void (*on_rank_lost)(void *context, const struct ct_failure *failure, int left);
    void (*on_node_lost)(void *context, const char *text, int left);
    void (*on_shrunk)(void *context, int left, uint64_t after_ms);
    /* With survive_replace: another one is started in the place of a lost one, the count-th; `joined` of the
     * `size` that go on are such. */
    void (*on_replacing)(void *context, const struct ct_failure *failure,
                         uint32_t count);
    void (*on_grown)(void *context, int joined, int size);
    /* What a line of the file timer says; 0, or a negative errno. Needed with timer_file. */
    int (*parse_timer)(void *context, const char *line, size_t length,
                       struct agent_timer *out);
    /* Before each restart: a descriptor, taken, that words come from until one is the last, within gpu_wait_ms; -1: there
     * is nothing to wait for. May be NULL. Each word goes to on_gpu(). */
    uint64_t gpu_wait_ms;
    int (*wait_for_gpus)(void *context);
    void (*on_gpu)(void *context, const struct agent_gpu_word *word);
    /* Another command line for the workers, from the next plan of a new generation on. With is_taken false it is only looked at.
     * *program: a hash of what it executes; 0: not known. 0, or a code and why this node cannot. */
    bool allows_chaos; /* ctrunctl chaos may inject faults here */
    int (*reload)(void *context, const struct ct_reload *reload, bool is_taken,
                  uint64_t *program, struct ctrun_error *err);
    /* For people, each may be NULL: server not reached yet, every ten seconds (`why` is the last
     * attempt's trouble), waiting for nodes, round started, stopped, restarting. */
    void (*on_connecting)(void *context, const char *why, uint64_t waited_ms);
    /* The connection to the server broke: workers keep running, and for left_ms it is tried to make
     * it again; then on_back, or their end. */
    void (*on_break)(void *context, const char *why, uint64_t left_ms);
    void (*on_back)(void *context);
    void (*on_waiting)(void *context, const struct ct_waiting *waiting,
                       uint64_t waited_ms);
    void (*on_start)(void *context, const struct ct_start *start);
    /* A checkpoint that was held in memory for a worker is on the disk, or lost. */
    void (*on_held)(void *context, const struct hold_end *end);
    /* Once: hang_timeout_ms have passed, no worker here has told a step, and none is a Python. */
    void (*on_no_steps)(void *context);
    void (*on_stop)(void *context, const struct ct_stop *stop);
    /* So long this node waits before it offers itself again, after so many failures in a row. May be NULL. */
    void (*on_delay)(void *context, uint64_t delay_ms, uint32_t failures);
    /* Workers have been started, and what that took is known as far as it will be. */
    void (*on_bill)(void *context, const struct agent_bill *bill);
    bool
        signals_are_exact; /* each comes once: no copy by a scheduler is to be expected */
    /* A signal came from `sender` (0: the kernel, as for Ctrl-C): it ends the run, as Ctrl-C
     * number `interrupts` when it is one, or is passed on. May be NULL. */
    void (*on_signal)(void *context, int signal, pid_t sender, bool is_ending,
                      int interrupts);
    void (*on_allocation_end)(void *context, const struct agent_ending *ending);
    /* The first cause of the last stop as text, "" when nothing has failed. May be NULL. */
    void (*why)(void *context, char *dst, size_t size);
    /* After a signal that ends the run, every ten seconds: what is left of signal_grace_ms. */
    void (*on_countdown)(void *context, uint64_t left_ms);
    /* The limits of the run are others now. */
    void (*on_resize)(void *context, const struct ct_resize *resize);
    /* The rendezvous is lost, the workers are being ended, and it is looked for again for
     * `looked_for_ms` (0: no more, and this node ends); it is back, and this node joins as a new one. */
    void (*on_lost)(void *context, const struct ctrun_error *why,
                    uint64_t looked_for_ms);
    void (*on_returned)(void *context);
};
