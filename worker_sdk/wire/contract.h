/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher and a worker agree on: environment names and exit codes.
 *
 * Names that torchrun defined keep its spelling and meaning; ours begin with CTRUN_. */
#pragma once

/* Set for every worker (torchrun's environment). */
#define CT_ENV_RANK             "RANK"
#define CT_ENV_LOCAL_RANK       "LOCAL_RANK"
#define CT_ENV_GROUP_RANK       "GROUP_RANK"
#define CT_ENV_ROLE_RANK        "ROLE_RANK"
#define CT_ENV_ROLE_NAME        "ROLE_NAME"
#define CT_ENV_WORLD_SIZE       "WORLD_SIZE"
#define CT_ENV_LOCAL_WORLD_SIZE "LOCAL_WORLD_SIZE"
#define CT_ENV_GROUP_WORLD_SIZE "GROUP_WORLD_SIZE"
#define CT_ENV_ROLE_WORLD_SIZE  "ROLE_WORLD_SIZE"
#define CT_ENV_MASTER_ADDR      "MASTER_ADDR"
#define CT_ENV_MASTER_PORT      "MASTER_PORT"
#define CT_ENV_RESTART_COUNT    "TORCHELASTIC_RESTART_COUNT"
#define CT_ENV_MAX_RESTARTS     "TORCHELASTIC_MAX_RESTARTS"
#define CT_ENV_RUN_ID           "TORCHELASTIC_RUN_ID"
#define CT_ENV_USE_AGENT_STORE  "TORCHELASTIC_USE_AGENT_STORE"
#define CT_ENV_ERROR_FILE       "TORCHELASTIC_ERROR_FILE"
#define CT_ENV_SIGNALS          "TORCHELASTIC_SIGNALS_TO_HANDLE"
#define CT_ENV_NCCL_ASYNC       "TORCH_NCCL_ASYNC_ERROR_HANDLING"
#define CT_ENV_OMP_THREADS      "OMP_NUM_THREADS"
#define CT_ENV_FAULTHANDLER     "PYTHONFAULTHANDLER"
#define CT_ENV_UNBUFFERED       "PYTHONUNBUFFERED"
#define CT_ENV_TIMER_FILE       "TORCHELASTIC_TIMER_FILE"
/* Read by the launcher, "1": the agent has no store at MASTER_PORT, worker 0 may open one. */
#define CT_ENV_NO_SHARED_STORE "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
/* Ours. */
/* Unix socket of the agent (a path, or "@..." for an abstract name), and the number of the world,
 * decimal. */
#define CT_ENV_AGENT_SOCKET "CTRUN_AGENT_SOCKET"
#define CT_ENV_GENERATION   "CTRUN_GENERATION"
/* How often this worker alone was restarted in this round; set only if its role allows this. */
#define CT_ENV_ROLE_RESTART_COUNT "CTRUN_ROLE_RESTART_COUNT"
/* "1": tell the agent where this process crashed, "0": do not; ctrun sets it unless it is set. */
#define CT_ENV_CRASH_REPORT "CTRUN_CRASH_REPORT"
/* "1": when a rank is lost the others may continue (--survive=sdk); else not set. */
#define CT_ENV_MAY_SHRINK "CTRUN_MAY_SHRINK"
/* With CTRUN_MAY_SHRINK: "1": lost ranks are started again (--survive-replace); "new": this process
 * replaces a lost rank of a running world; else not set. */
#define CT_ENV_MAY_GROW "CTRUN_MAY_GROW"
/* "1": with CTRUN_MAY_SHRINK, where ranks are freed from each other's collectives (--survive=torch); else not set. */
#define CT_ENV_MAY_REFORM "CTRUN_MAY_REFORM"
/* "1": groups of this process use no shared memory; "0": they may. Set by the user. */
#define CT_ENV_SHM_DISABLE "CTRUN_SHM_DISABLE"
/* --net and --port-range, as given: the SDK's own listeners use only these. */
#define CT_ENV_NET        "CTRUN_NET"
#define CT_ENV_PORT_RANGE "CTRUN_PORT_RANGE"
/* Under a batch system: the task's run id, by which a ctrun inside a worker finds its own step. */
#define CT_ENV_BATCH_TASK "CTRUN_BATCH_TASK"
/* --hang-timeout: the folder of agent/recorder, and PYTHONPATH as it is without that; a worker's program
 * sees neither. */
#define CT_ENV_RECORDER   "CTRUN_RECORDER"
#define CT_ENV_PYTHONPATH "CTRUN_PYTHONPATH"
/* Read by the launcher: when the allocation ends, seconds since 1970. */
#define CT_ENV_END_TIME "CTRUN_END_TIME"
/* Read by the launcher: the file that gets the event stream, see base/event.h. */
#define CT_ENV_EVENTS "CTRUN_EVENTS"

/* Exit codes of ctrun beyond the root cause's own (a worker's code, 128 + signal). */
enum ct_exit {
    CT_EXIT_OK = 0,
    CT_EXIT_FAILURE = 1, /* input that torchrun refuses with 1, our own trouble */
    CT_EXIT_USAGE = 2,   /* the command line */
    CT_EXIT_CLASS_EXIT =
        70, /* 70 to 74: --exit-code=class, in place of a worker's own */
    CT_EXIT_CLASS_SIGNAL = 71,
    CT_EXIT_CLASS_OOM = 72,
    CT_EXIT_CLASS_HANG = 73,
    CT_EXIT_CLASS_LOOP = 74,
    CT_EXIT_RETRY = 75,      /* too few nodes joined, or too many are lost: try again */
    CT_EXIT_UNKILLABLE = 76, /* E_UNKILLABLE, E_EXCLUDED: do not reuse this node */
    CT_EXIT_REFUSED = 77,    /* E_PORT_BUSY, E_AUTH, ...: this start can never work */
    CT_EXIT_BUDGET = 78, /* all went well, but a restart took longer than --budget */
    CT_EXIT_CANNOT_EXEC = 126,
    CT_EXIT_NOT_FOUND = 127,
    CT_EXIT_SIGNAL = 128, /* + signal number */
};
