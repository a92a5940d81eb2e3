/* SPDX-License-Identifier: Apache-2.0 */
/* The node agent: meets the other nodes, runs this node's workers round after round, and
 * reports how they ended. One libuv loop on the calling thread; never polls.
 *
 *     CONNECTING ──welcome──> JOINING ──start──> RUNNING ──all exited 0──> SUCCEEDED ──┐
 *          ▲                     ▲                  │ stop, failure, signal            │ verdict
 *          └──link lost (retry)  └──── gone ── STOPPING <──────────────────────────────┤
 *                                                   └── final ──> ENDED <──────────────┘
 *
 * The agent knows nothing of command lines: whoever starts it (launcher/) fills in what to run,
 * how to build one worker's environment, and where a worker store comes from. */
#ifndef AGENT_AGENT_H
#define AGENT_AGENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/bind.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/wire/auth.h"
#include "worker_sdk/wire/message.h"
#include "worker_sdk/wire/takeover.h"

/* Where one stream of one worker goes. */
enum agent_stream {
    AGENT_STREAM_CONSOLE, /* inherited when there is one worker, else a pipe, whole lines */
    AGENT_STREAM_FILE,             /* --redirects */
    AGENT_STREAM_TEE,              /* file, and console with the prefix */
    AGENT_STREAM_DROP,             /* not in --local-ranks-filter: nowhere */
    AGENT_STREAM_FILE_ONLY_OF_TEE, /* teed, but filtered: file only */
};

/* What one worker reads as its standard input. */
enum agent_input {
    AGENT_INPUT_SHARED, /* ours, as every other worker */
    AGENT_INPUT_SOLE, /* ours, and no other worker does; a terminal stays one for it */
    AGENT_INPUT_NONE, /* /dev/null */
};

/* One worker, ready to be started; made by agent_options.plan for each (re)start. */
struct agent_worker_plan {
    char **argv;       /* owned; argv[0] is looked up in PATH */
    struct ct_env env; /* owned; complete */
    enum agent_input in;
    enum agent_stream out;
    enum agent_stream err;
    char *out_file; /* owned; NULL when not used. Directories exist */
    char *err_file;
    char *error_file; /* owned; TORCHELASTIC_ERROR_FILE, NULL when none */
    char *prefix;     /* owned; in front of teed lines, NULL: none */
    const char *
        out_paint; /* kept; escape sequence for the prefix on the console; NULL: none */
    const char *err_paint;
    char *
        filtered_out_file; /* owned; gets teed lines that hold one of the filter texts */
    char *filtered_err_file;
    struct bind bind; /* CPUs and limits; zeroed: ours */
    bool may_restart; /* a failure is for restarts_alone() to judge */
    int restarts; /* told to plan: it was started again alone so often in this round */
};

/* One line that a worker wrote to the file timer (agent/watchdog.h). */
struct agent_timer {
    int32_t pid;
    int signal;       /* <= 0: nobody is killed when it runs out */
    double expires_s; /* seconds since 1970; < 0: released */
    char scope[4096];
};

/* What is done before the allocation ends. */
struct agent_ending {
    int signal;
    bool is_ending;    /* it ends the run; else it is only passed on */
    bool has_workers;  /* some run that can save */
    uint64_t left_ms;  /* of the allocation */
    uint64_t grace_ms; /* for the workers */
};

/* What happened, for the launcher to print and to map to an exit code. */
struct agent_result {
    struct ct_verdict verdict; /* outcome, root cause first */
    bool is_mid_line;          /* a worker left a line on stderr unfinished */
    int signal;                /* != 0: we were told to end by this signal */
    int passed_signal;         /* the last one that was only passed on; 0: none */
    bool allocation_ends;      /* that is why, or why it was passed on */
    struct ctrun_error error; /* code != 0: the agent itself failed (rendezvous, ...) */
};

struct agent_options {
    struct ct_hello hello; /* run id, host, limits */
    struct ct_join join;   /* slots, role, hints; store_port is filled by the agent */
    const struct ct_addr
        *server; /* candidates for the rendezvous server, tried in order */
    size_t server_count;
    /* Instead of these, unless NULL: where it is now; see link.h. */
    size_t (*find_servers)(void *context, struct ct_addr *out, size_t max);
    const struct ct_auth_token *token; /* kept; NULL or empty: none */
    bool uses_munge;                   /* proves itself so, instead of by a token */
    bool wants_seal;                   /* encrypts the link to the rendezvous */
    bool
        hosts_server; /* in this process: while we are paused nobody can start a world */
    /* key 0: no other node may take the place of the rendezvous' node when it is lost. */
    struct ct_claim claim;
    uint64_t connect_timeout_ms; /* to reach any of them (read_timeout) */
    uint64_t grace_ms;           /* between SIGTERM and SIGKILL, every stop alike */
    uint64_t signal_grace_ms;    /* but after a signal to us; 0: the same */
    /* The allocation ends at end_s (seconds since 1970; 0: not known); so long before, the workers
     * get end_signal as if it had come from outside, and have what is left of the time then, but
     * at most end_grace_ms. stop_before_end_s 0: nothing is done. */
    int64_t end_s;
    uint64_t stop_before_end_s;
    uint64_t end_grace_ms;
    int end_signal;
    bool is_alone;      /* no other node can ever find this run */
    bool serves_pmi;    /* workers get PMI-1: one node alone */
    int pmi_fd;         /* of another launcher, for the one worker; 0: none */
    bool keeps_signals; /* USR1 and USR2 reach the workers of this node only */
    const int *signals; /* signals to forward and end by */
    size_t signal_count;
    const char *const
        *out_filters; /* --duplicate-stdout-filters, NULL-terminated or NULL */
    const char *const *err_filters;
    /* --collapse: what stands in front of a line that several workers of this node have written
     * alike, given as lists ("0-3,6"); is_teed: where --tee puts a prefix. Caller frees. NULL:
     * each worker's line is shown by itself. */
    char *(*ranks_prefix)(void *context, const char *local_ranks, const char *ranks,
                          bool is_teed);
    uint64_t log_max_bytes; /* of each log file; then it is renamed; 0: no cap */
    int log_keep;           /* renamed ones that are kept */
    uint64_t rate_limit;    /* bytes a second of a worker on the console; 0: none */

    uint64_t hang_timeout_ms; /* without a step; 0: nobody looks */
    uint64_t min_uptime_ms;   /* a worker that fails before is early; 0: none is */
    uint64_t
        stuck_limit_ms; /* in uninterruptible sleep: then we leave; 0: not looked at */
    const char *timer_file; /* named pipe to make and read; NULL: none */

    void *context; /* given to the functions below */
    /* Builds worker `local_rank` of this round. 0 or a code; the agent frees the plan. */
    int (*plan)(void *context, const struct ct_start *start, int local_rank,
                struct agent_worker_plan *out, struct ctrun_error *err);
    /* Opens a new, empty worker store and tells its port; closed when its round is over. */
    int (*open_store)(void *context, uint16_t *port, uint64_t *store,
                      struct ctrun_error *err);
    void (*close_store)(void *context, uint64_t store);
    /* Group rank 0's agent only, before its START: pieces of the list of who may use the store.
     * May be NULL. */
    void (*on_members)(void *context, uint64_t store, const struct ct_members *members);
    /* Serves in the place of a rendezvous that was lost, at the port of `claim`; until yield. NULL:
     * nobody may. */
    int (*inherit)(void *context, const struct ct_heritage *heritage,
                   struct ctrun_error *err);
    void (*yield)(void *context);
    /* Before on_start: how the workers of this node reach group rank 0. start->master_addr is
     * the address that works from here, `local` this node's on that way; NULL: the world is one
     * host, or the way is not known. May be NULL. */
    void (*on_way)(void *context, const struct ct_start *start,
                   const struct ct_addr *local);
    /* A worker of this node ended badly; called before the failure is told to anybody. May be
     * NULL. May replace failure->text (the last lines of output by then) by the message of its
     * error file; the agent knows the file's path, not its format. */
    void (*describe)(void *context, struct ct_failure *failure);
    /* A worker whose plan says may_restart has failed, and nothing is being stopped: true when it
     * is to be started again alone, in the same round; false: its failure is told as any
     * other's. Called after `describe`. May be NULL: none is. */
    bool (*restarts_alone)(void *context, const struct ct_start *start,
                           const struct ct_failure *failure);
    /* What a line of the file timer says; 0, or a negative errno. Needed with timer_file. */
    int (*parse_timer)(void *context, const char *line, size_t length,
                       struct agent_timer *out);
    /* For people, each may be NULL: server not reached yet, every ten seconds (`why` is the last
     * attempt's trouble), waiting for nodes, round started, stopped, restarting. */
    void (*on_connecting)(void *context, const char *why, uint64_t waited_ms);
    /* The connection to the server broke: the workers go on, and for left_ms it is tried to make
     * it again; then on_back, or their end. */
    void (*on_break)(void *context, const char *why, uint64_t left_ms);
    void (*on_back)(void *context);
    void (*on_waiting)(void *context, const struct ct_waiting *waiting,
                       uint64_t waited_ms);
    void (*on_start)(void *context, const struct ct_start *start);
    void (*on_stop)(void *context, const struct ct_stop *stop);
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
     * `looked_for_ms`; it is back, and this node joins as a new one. */
    void (*on_lost)(void *context, const struct ctrun_error *why,
                    uint64_t looked_for_ms);
    void (*on_returned)(void *context);
    /* The rendezvous on `host` is lost (`why`), and `heir` takes its place; is_self: this node. */
    void (*on_heir)(void *context, const struct ctrun_error *why, const char *host,
                    const struct ct_roster_node *heir, bool is_self);
    /* What the workers of the round that is ending had left behind, killed with them. */
    void (*on_leftovers)(void *context, const char *processes);
    /* With rate_limit: so much of what this rank wrote was not shown, since it was told last. */
    void (*on_left_out)(void *context, int rank, uint64_t lines, uint64_t bytes);
    /* For events: a worker runs; it has ended (cause CT_CAUSE_NONE: well). */
    void (*on_worker_started)(void *context, int local_rank, int pid);
    void (*on_worker_ended)(void *context, const struct ct_failure *end);
};

void agent_worker_plan_deinit(struct agent_worker_plan *plan);

/* Runs until the run is over for this node; blocks. `result` is zeroed by the caller. Returns 0
 * when *result says how it ended (a failed run is a result, not an error), or a code when the
 * agent could not even start. */
int agent_run(const struct agent_options *options, struct agent_result *result,
              struct ctrun_error *err);

#endif
