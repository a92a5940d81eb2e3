/* SPDX-License-Identifier: Apache-2.0 */
/* Options and environment, resolved: what this node will do, with nothing left to
 * decide but what the network answers. Opens and starts nothing. */
#ifndef LAUNCHER_CONFIG_H
#define LAUNCHER_CONFIG_H

#include <limits.h>

#include "launcher/etcd_config.h"
#include "launcher/nic_hints.h"
#include "launcher/nnodes.h"
#include "launcher/option.h"
#include "launcher/placement.h"
#include "launcher/program.h"
#include "launcher/streams.h"
#include "worker_sdk/base/net.h"
#include "worker_sdk/base/port_range.h"
#include "worker_sdk/wire/auth.h"
#include "worker_sdk/wire/role.h"

enum config_backend {
    CONFIG_LOCAL, /* one node: a private server on a free port of the loopback interface */
    CONFIG_STATIC, /* node rank 0 serves at the endpoint, the workers' store as well */
    CONFIG_C10D,   /* whoever owns the endpoint's address serves */
    CONFIG_ETCD,   /* whoever is elected serves, and another one when that one dies */
};

enum config_is_host {
    CONFIG_HOST_AUTO,
    CONFIG_HOST_NO,
    CONFIG_HOST_YES
};

/* Who reads standard input, where it is no rank. */
enum config_stdin {
    CONFIG_STDIN_ALL = -1,
    CONFIG_STDIN_NONE = -2,
};

enum {
    CONFIG_SIGNALS_MAX = 64,
    CONFIG_FILTERS_MAX = 64
};

/* One of several tasks that a batch system has started on this node; each is one rank. */
struct config_task {
    bool is_rank;               /* false: an agent of its own, the rest is 0 */
    bool is_quiet;              /* another task of this node says what all know */
    int local_id;               /* our worker's LOCAL_RANK */
    int local_count;            /* LOCAL_WORLD_SIZE */
    int place;                  /* ours among those that `placement` has */
    int node_id;                /* GROUP_RANK */
    int node_count;             /* GROUP_WORLD_SIZE */
    char layout[CT_LAYOUT_MAX]; /* tasks of each node: "8+8+7" */
};

/* srun's PMI, through which the nodes may learn where they meet: launcher/meet_pmi.h. */
struct config_pmi {
    bool is_used;
    bool is_required; /* --bootstrap=pmi: no other way will do */
    bool
        is_for_worker; /* not used, and this task is one rank: its program may be MPI */
    bool makes_token;  /* nothing else tells who belongs to the run */
    int fd;
    int rank;
    int size;
    char job[64];
    char why_not[192]; /* empty: nobody has looked for one */
};

struct config {
    enum config_backend backend;
    struct nnodes nodes;
    uint32_t node_unit; /* worlds have a multiple of so many nodes */
    int nproc;
    char run_id[CT_RUN_ID_MAX];
    char role[CT_ROLE_MAX];            /* of several, all names: "trainer+data" */
    struct ct_role_list roles;         /* of this node's workers; empty: `role` is it */
    struct config_role *role_programs; /* one for each; owned */
    uint32_t
        role_restarts[CT_ROLES_MAX]; /* of a worker alone, on this node in a round */
    char host[CT_HOST_MAX];          /* this machine's name */
    char local_addr[CT_HOST_MAX];
    struct ct_net net;          /* --net; count 0: every interface */
    const char *net_text;       /* as given */
    struct ct_port_range ports; /* --port-range */
    const char *ports_text;
    bool guards_stores; /* the worker store is for nodes of this run alone */
    int node_rank;      /* static: ours; else -1 */
    int node_id;    /* place among the nodes of a batch system or --hosts; else -1 */
    int node_count; /* how many these are; 0: not known */
    struct ct_endpoint endpoint; /* CONFIG_LOCAL: 127.0.0.1, port 0 */
    struct etcd_config etcd; /* CONFIG_ETCD: where and how; `endpoint` is its first */
    enum config_is_host is_host;
    struct ct_auth_token token; /* empty: nobody proves anything, but by MUNGE */
    bool uses_munge;
    bool wants_seal; /* --encrypt */
    uint32_t max_restarts;

    uint64_t join_timeout_ms;
    uint64_t last_call_ms;
    uint64_t connect_timeout_ms;
    uint64_t heartbeat_ms;
    uint64_t lost_after_ms;
    uint64_t grace_ms;
    uint64_t
        signal_grace_ms; /* after a signal to us: the batch system's, where known */
    uint64_t hang_timeout_ms; /* without a step; 0: nobody looks */
    uint64_t min_uptime_ms;   /* a failure before is an early one; 0: none is */
    uint64_t stuck_limit_ms;  /* in uninterruptible sleep; 0: not looked at */

    int signals[CONFIG_SIGNALS_MAX];
    size_t signal_count;
    const char *signals_text; /* as given, for TORCHELASTIC_SIGNALS_TO_HANDLE */

    struct program program; /* of several roles, the first one's, with their names */
    struct streams streams;
    int stdin_rank;      /* the only one that reads standard input, or CONFIG_STDIN_* */
    const char *log_dir; /* NULL: a new one in the temporary directory */
    bool has_no_files;   /* --log-dir /dev/null */
    const char *prefix_template;
    bool paints_out; /* prefixes in colour: each stream's terminal decides */
    bool paints_err;
    bool collapses;         /* equal lines of several workers into one */
    uint64_t log_max_bytes; /* of one log file; 0: no limit */
    int log_keep;
    uint64_t
        rate_limit; /* of a worker's lines on the console, bytes a second; 0: none */
    char *out_filters[CONFIG_FILTERS_MAX + 1]; /* owned, NULL at the end */
    char *err_filters[CONFIG_FILTERS_MAX + 1];

    bool prints_torch_events;       /* --event-log-handler=console */
    char timer_file[PATH_MAX];      /* named pipe of the file timer; empty: none */
    const char *batch_system;       /* "Slurm": what was not said is its; NULL: none */
    char batch[CT_HOST_MAX + 192];  /* our place in it, for people */
    char batch_task[CT_RUN_ID_MAX]; /* for the workers; empty: not a task */
    uint32_t requeues;              /* earlier starts of the job */
    int64_t end_s;              /* of the job's time, seconds since 1970; 0: unknown */
    uint64_t stop_before_end_s; /* 0: nothing is done before it */
    int end_signal;             /* what is done: this signal to the workers */
    uint64_t end_grace_ms;      /* for them then, at most */
    uint32_t kill_wait_s;       /* between the batch system's SIGTERM and SIGKILL; 0 */
    int requeue_exit;   /* 0: none; else the code of a run cut short but saved */
    bool keeps_signals; /* --signal-scope=node */
    struct config_task task;
    struct config_pmi pmi;
    bool virtual_local_rank;
    bool serves_pmi; /* --pmi */
    struct placement placement;
    struct nic_hints nics; /* found when they are shown or used */
    bool torchrun_exit_code;
    char *const *env; /* the launcher's environment, borrowed */
};

/* 0, or the code of a refusal: -EINVAL (exit 1), CTRUN_E_USAGE (exit 2), CTRUN_E_EXEC
 * (127). Logs warnings about what was given and has no effect. `out` may be deinit'ed
 * in any case. */
int config_resolve(struct config *out, const struct options *options, char *const *env,
                   struct ctrun_error *err);
void config_deinit(struct config *config);

/* Seconds that the batch system leaves us, 0 when none or unknown. */
int64_t config_time_left(const struct config *config);
/* The role of a worker in a round. */
void config_role_at(struct ct_role_at *out, const struct config *config,
                    const struct ct_start *start, int local_rank);
/* How often a worker of its role may be started again alone; 0: never. */
uint32_t config_role_restarts(const struct config *config, int local_rank);
/* What it executes. */
const struct program *config_program(const struct config *config, int local_rank);
/* Of what all workers of this node execute; 0: not known. */
uint64_t config_program_hash(const struct config *config);
/* The workers of the role that has most of them. */
int config_widest_role(const struct config *config);
const char *config_backend_name(enum config_backend backend);

#endif
