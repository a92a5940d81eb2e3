/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a launch share; nobody else includes it.
 *
 *     launch.c         from a configuration to an agent
 *     launch_serve.c   the server in this process: the rendezvous when it is ours, worker stores
 *     launch_pmi.c     how the nodes find it through srun's PMI
 *     launch_notices.c notices while the run goes on
 *     launch_bill.c    what starts and restarts have cost
 *     launch_reload.c  another program for the next rounds
 *     launch_restart.c a worker that is restarted alone
 *     launch_gpu.c     whether the memory of GPUs is free again; how fast they run (gpu_watch.h)
 *     launch_exit.c    the exit code and error file of the launcher itself
 *     launch_end.c     the failure report, summary.json, the exit code */
#pragma once

#include "agent/agent.h"
#include "launcher/etcd/leader_candidate.h"
#include "launcher/ha/ha.h"
#include "launcher/net/addresses.h"
#include "launcher/net/rdzv_endpoint.h"
#include "launcher/net/route.h"
#include "launcher/report/bills.h"
#include "launcher/report/earlier_starts.h"
#include "launcher/report/killed_ranks.h"
#include "launcher/report/last_failure.h"
#include "launcher/run/gpu_watch.h"
#include "launcher/run/launch.h"
#include "launcher/run/launch_exit.h"
#include "launcher/run/logdir_blocking.h"
#include "launcher/run/role_restarts.h"
#include "launcher/run/torch_events.h"
#include "launcher/run/warm.h"
#include "rendezvous/server/server.h"

/* What the workers run from the next round on; words NULL: no reload is pending. */
struct launch_reload {
    char **words; /* owned; `program` points into it */
    struct program program;
};

struct launch {
    const struct config *config;
    struct program *program;              /* of the config */
    const struct ctrun_error *no_program; /* why workers cannot start; NULL: they can */
    struct launch_reload reload;          /* from the next round on */
    struct launch_gpu *gpu;               /* NULL: no --gpu-wait */
    struct gpu_watch *gpu_watch;          /* NULL: no --stragglers */
    char **used_words;                    /* owned: words of *program after a reload */
    struct rdzv_endpoint endpoint;
    char
        absent[CT_MISSING_MAX]; /* nodes that srun's PMI waits for: pmi_absent_find() */
    struct addresses addresses;
    struct addresses reached; /* those of the embedded server */
    struct route route;       /* of this round */
    int group_rank;           /* in the last round; -1: there was none */
    char printed_route[CT_ADDR_TEXT_MAX];
    bool has_noticed_place, has_noticed_loopback;
    bool has_noticed_own;
    bool has_noticed_held;
    struct server *server; /* NULL until the first listener is needed */
    uint64_t store;        /* of the first round; 0: none, or in use */
    uint16_t store_port;
    struct leader_candidate *candidate; /* backend etcd, --ha; else NULL */
    struct ha *ha;                      /* --ha; else NULL */
    struct ha_keeper ha_keeper;
    struct logdir_blocking logdir;
    bool has_noticed_no_files; /* warned that workers get no files */
    bool has_noticed_tmpdir;
    bool has_noticed_logs; /* named the folder of their log files */
    struct warm warm;
    struct torch_events torch_events;
    struct role_restarts role_restarts;
    struct bills bills;
    struct job_starts earlier; /* of the batch system's job */
    bool is_one_of_many;       /* the last round had several nodes */
    struct ct_waiting waiting; /* last received, for the summary */
    uint64_t waited_ms;
    uint64_t printed_ms;
    uint64_t born_ms;
    bool has_logged_omp;
    char printed_layout[CT_LAYOUT_MAX];
    bool is_ending; /* a signal has ended the run here */
    struct killed_ranks killed;
    struct last_failure why; /* the first cause of the last stop */
    struct past_failures past;
    bool serves_rendezvous; /* this process serves it */
    int master_port_fd; /* reserves the port at which worker 0 will serve; -1: none */
    int jax_port_fd;    /* the same for JAX's coordinator, with --jax */
    char *orphans;      /* that were killed; printed after the cause; NULL: none */
    bool
        was_at_ctrund; /* at the end: the rendezvous server that was lost was a ctrund */
    bool has_returned; /* rejoined after a loss of the rendezvous: print the rank */
};

/* ---- launch_restart.c ------------------------------------------------------------------ */

/* agent_options.restarts_alone; context: struct launch. */
bool launch_restarts_alone(void *context, const struct ct_start *start,
                           const struct ct_failure *failure);

/* ---- launch_reload.c ------------------------------------------------------------------- */

/* agent_options.reload; context: struct launch. */
int launch_on_reload(void *context, const struct ct_reload *message, bool is_taken,
                     uint64_t *program, struct ctrun_error *err);
/* Called when a round begins: the workers get the reloaded program from now on. */
void launch_use_reload(struct launch *launch);
void launch_deinit_reload(struct launch *launch);

/* ---- launch_gpu.c ---------------------------------------------------------------------- */

/* Called before the first workers start; reads the GPUs on another thread. */
void launch_begin_gpu(struct launch *launch);
void launch_end_gpu(struct launch *launch);
/* agent_options.look_at_gpus, wait_for_gpus and on_gpu; context: struct launch. */
void launch_look_at_gpus(void *context, struct rank_gpu *out, int count);
int launch_wait_for_gpus(void *context);
void launch_on_gpu(void *context, const struct agent_gpu_word *word);

/* ---- launch_bill.c --------------------------------------------------------------------- */

/* agent_options.on_bill; context: struct launch. */
void launch_on_bill(void *context, const struct agent_bill *bill);
/* A run that has succeeded, but not within --budget, is an error. */
void launch_check_budget(const struct launch *launch, struct agent_result *result);

/* ---- launch_serve.c -------------------------------------------------------------------- */

/* Serves the rendezvous, or finds that another ctrun or ctrund on this machine does. 0 or a
 * code. */
int launch_host_rendezvous(struct launch *launch, struct ctrun_error *err);
/* Serves at the derived port, or at a free port if the derived port is taken. */
int launch_serve_anywhere(struct launch *launch, uint16_t *port,
                          struct ctrun_error *err);
/* For --ha; else they do nothing. The first is called before this node serves, the second when it
 * serves or knows the serving node. 0 or a code. */
int launch_prepare_ha(struct launch *launch, struct ctrun_error *err);
int launch_start_ha(struct launch *launch, struct ctrun_error *err);
void launch_fill_stores(const struct launch *launch, struct agent_options *options);
/* Called when workers start: frees the reserved ports for worker 0. */
void launch_free_ports(struct launch *launch);
/* Called after the agent has ended; what the server knows at its end is kept (leave_mark()). */
void launch_close_server(struct launch *launch);

/* ---- launch_pmi.c ---------------------------------------------------------------------- */

/* 1: this node serves, or knows the serving node: its addresses are in `launch`; the port, and
 * the token if one was made, are in `config`. 0: the PMI cannot be used, which was printed; or a
 * code. */
int launch_meet_by_pmi(struct launch *launch, struct config *config,
                       struct ctrun_error *err);

/* ---- launch_notices.c ------------------------------------------------------------------ */

/* Prints, at the start, what a user might later take for a fault. */
void launch_notice_beginning(const struct config *config);
void launch_fill_words(struct agent_options *options);
/* Prints the killed orphans; called after the first cause is printed. */
void launch_notice_orphans(struct launch *launch);

/* ---- launch_end.c ---------------------------------------------------------------------- */

/* Prints an error of the launcher or the rendezvous, and writes it into the error file. */
void launch_explain(struct launch *launch, const struct ctrun_error *err);
/* Reports to people and programs how the agent ended; returns the exit code. */
int launch_end(struct launch *launch, struct agent_result *result);
