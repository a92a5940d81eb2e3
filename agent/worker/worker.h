/* SPDX-License-Identifier: Apache-2.0 */
/* One worker of this node in one round:
 *
 *     NEW ──start──> RUNNING ──exit──> ENDED
 *                       ▲                 │ failed, and its role is restarted alone
 *                       └─── gone ── RESTARTING ── stop ──> ENDED
 *
 * RESTARTING: it is dead, and what it left behind is being killed. So it is with one that is lost while the
 * others may continue (is_lost); it ends then, and once they do (is_survived) another one may start in its place
 * (is_new). */
#pragma once

#include "agent/loop/blocking_call.h"
#include "agent/output/output.h"
#include "agent/postmortem/failure_evidence.h"
#include "agent/postmortem/memory.h"
#include "agent/process/spawn.h"
#include "agent/process/template.h"
#include "agent/recorder/recorder_folder.h"
#include "agent/worker/plan.h"
#include "worker_sdk/wire/role.h"

enum worker_state {
    WORKER_NEW,
    WORKER_RUNNING,
    WORKER_RESTARTING,
    WORKER_ENDED
};

struct orphans_pass;

struct worker {
    enum worker_state state;
    struct spawn spawn;
    pid_t pid;      /* once it is confirmed */
    bool is_forked; /* by the template */
    int local_rank;
    int rank;
    int stop_signal;   /* the last signal that we sent; 0: none */
    int passed_signal; /* the last one that was for it and went through us; 0: none */
    bool is_freed;     /* an error in its collective is our doing: it may end of it */
    int timer_signal;  /* sent because its file timer ran out; 0: none did */
    char timer_text[256]; /* which one */
    struct {              /* what ctrunctl chaos has done to it */
        int signal;       /* 0: nothing */
        uint32_t line;    /* of its plan */
        uint64_t at_ms;
        uint64_t until_ms; /* it is stopped until then; 0: it is not */
    } chaos;
    bool asks;        /* --survive: it waits for the answer who continues */
    bool is_lost;     /* --survive: it failed, and the others may continue */
    bool is_survived; /* and they do */
    bool is_new; /* --survive-replace: it waits, or will, until the others take it in */
    bool
        is_renewed; /* we end it: it was started with the address of a lost worker store */
    bool has_raised; /* told as a failure for its error file, before it had ended */
    struct blocking_file look; /* at that file, in this pass; path NULL: none yet */
    int restarts;              /* alone, in this round */
    struct orphans_pass
        *orphans;        /* RESTARTING: what it left; owned; NULL: not looked yet */
    uint64_t gone_by_ms; /* when that must be gone */
    uint64_t started_ms;
    struct memory_curve memory;
    uint64_t
        hello_ms; /* when it said its first word on the agent's socket; 0: not yet */
    int64_t first_step;             /* the first one told */
    uint64_t first_step_ms;         /* when; 0: none was */
    int64_t step;                   /* last one reported; -1: none */
    uint64_t stepped_ms;            /* when */
    bool waits;                     /* in a collective, send or recv of the SDK */
    struct worker_metrics *metrics; /* owned; NULL: it has reported none */
    struct ct_samples
        *samples; /* owned: what it works on; NULL: it has reported none */
    struct agent_worker_plan plan;
    struct throttle *throttle; /* NULL: no limit */
    struct output *out;        /* NULL before the start */
    struct output *err;
    struct ct_failure
        failure; /* once it has ended, or never started; cause NONE: it did well */
};

/* What a worker needs besides its plan. */
struct worker_place {
    const struct worker_options *options;
    const struct ct_join *join; /* slots and roles of this node */
    const char *host;           /* this machine's name */
    bool is_one_node;           /* no other can join the run */
    const struct ct_start *start;
    const char *socket; /* for CTRUN_AGENT_SOCKET */
    struct loop *loop;
    struct logfile_writer *files;
    struct console *console_out;
    struct console *console_err;
    struct console_dedup *dedup_out; /* NULL: lines are not collapsed */
    struct console_dedup *dedup_err;
    struct template *template;              /* NULL: there is none */
    const struct recorder_folder *recorder; /* NULL: nobody reads it */
    struct spawn_batch *batch;              /* while workers start */
};

/* What worker `local_rank` will run, and with what. On failure worker->failure says why. */
int worker_plan(struct worker *worker, const struct worker_place *place,
                int local_rank);
/* A batch of at most `max` that are started, and its end: each is on its way, or runs. */
void worker_open_batch(struct spawn_batch *batch, const struct worker_place *place,
                       int max);
void worker_wait_batch(struct spawn_batch *batch, const struct worker_place *place);
/* Sends the planned one on its way. On failure worker->failure says why. */
int worker_start(struct worker *worker, const struct worker_place *place);
/* Waits until its program runs. On failure worker->failure says why. */
int worker_confirm(struct worker *worker, const struct worker_place *place);
/* It has ended as `death` says (program and started_ms are filled in here): fills failure, last
 * words included. */
void worker_end(struct worker *worker, const struct worker_place *place,
                struct failure_evidence death);
/* True when it runs and has written its error file: failure is of that moment then, cause
 * CT_CAUSE_RAISED, and stays when it ends. */
bool worker_has_raised(struct worker *worker, const struct worker_place *place);
/* It did not die of SIGKILL. */
void worker_give_up(struct worker *worker, const struct worker_place *place);
/* Another one in its place, alone: on its way and confirmed. On failure worker->failure says why. */
int worker_restart(struct worker *worker, const struct worker_place *place);
/* It has ended with a failure of its own, not because we stopped it. */
bool worker_has_failed(const struct worker *worker);
/* Its role in the round of `start`. */
void worker_find_role(struct ct_role_at *out, const struct worker *worker,
                      const struct ct_join *join, const struct ct_start *start);
/* The same as a fact of its failure, where its node has several. */
void worker_add_role(struct ct_failure *failure, const struct worker *worker,
                     const struct ct_join *join, const struct ct_start *start);
/* Its file timer `scope` has run out: that is its failure, whatever it makes of `signal`. */
void worker_expire(struct worker *worker, const char *scope, int signal);
/* Sends signal to its process group (and SIGCONT, so that a stopped one can act on it). */
void worker_signal(struct worker *worker, int signal);
/* KILL or STOP of ctrunctl chaos; 0 or a negative errno. */
int worker_inject(struct worker *worker, const struct ct_fault *fault);
/* It continues after a STOP. */
void worker_resume(struct worker *worker);
/* Passes a signal on to it. 0 or -errno. */
int worker_pass_signal(struct worker *worker, int signal);
/* What was done to it becomes a part of its failure. True: that is what it died of. */
bool worker_add_chaos(struct ct_failure *failure, const struct worker *worker);
/* Our terminal has another size. */
void worker_resize(struct worker *worker);
void worker_deinit(struct worker *worker);
