/* SPDX-License-Identifier: Apache-2.0 */
/* One worker of this node in one round:
 *
 *     NEW ──start──> RUNNING ──exit──> ENDED
 *                       ▲                 │ failed, and its role is restarted alone
 *                       └─── gone ── RESTARTING ── stop ──> ENDED
 *
 * RESTARTING: the worker is dead, and its orphans are being killed. A worker that is lost while the others may
 * continue (is_lost) is RESTARTING, too; it is ENDED after that. Once the others continue (is_survived), another worker
 * may start in its place (is_new). */
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
    pid_t pid;      /* once its start is confirmed */
    bool is_forked; /* by the template */
    int local_rank;
    int local_id; /* its LOCAL_RANK: not the same where a node has several agents */
    int rank;
    int stop_signal; /* the last signal that we sent; 0: none */
    bool
        has_no_handler; /* for the first of these signals: an exit code was on its way before */
    int passed_signal; /* the last signal for the worker that we passed on; 0: none */
    bool is_freed; /* we cut its connections: the error in its collective may end it */
    bool
        is_spared; /* it asks whether it should stop: the signal would end it before it has saved */
    int timer_signal;     /* sent because its file timer ran out; 0: none did */
    char timer_text[256]; /* that timer's scope */
    struct {              /* faults that ctrunctl chaos has injected */
        int signal;       /* 0: nothing */
        uint32_t line;    /* of its plan */
        uint64_t at_ms;
        uint64_t until_ms; /* it is stopped until then; 0: it is not */
    } chaos;
    bool asks;        /* --survive: it waits for the decision who continues */
    bool is_lost;     /* --survive: it failed, and the others may continue */
    bool is_survived; /* and the others have continued */
    bool is_new;      /* --survive-replace: the others have not accepted it yet */
    bool is_renewed;  /* we end it: it has the address of a lost worker store */
    bool has_raised;  /* reported for its error file, before it ended */
    struct blocking_file look; /* its error file, in this pass; path NULL: not yet */
    int restarts;              /* restarts of this worker alone in this round */
    struct orphans_pass
        *orphans;        /* RESTARTING: its orphans; owned; NULL: not looked yet */
    uint64_t gone_by_ms; /* when the orphans must be gone */
    uint64_t started_ms;
    uint64_t runs_ms; /* when its program was known to run; 0: not yet */
    struct memory_curve memory;
    uint64_t
        hello_ms; /* its first message on the agent's socket, or torch's init_process_group(); 0: not yet */
    uint64_t joined_ms;     /* when that function ended; 0: not seen */
    int64_t first_step;     /* the first step that it reported */
    uint64_t first_step_ms; /* when it reported that step; 0: none */
    uint64_t optimizer_ms; /* when torch's optimizer made its first step; 0: not seen */
    int64_t step;          /* the last step that it reported; -1: none */
    uint64_t stepped_ms;   /* when it reported that step */
    bool waits;            /* in a collective, send or recv of the SDK */
    struct worker_metrics *metrics; /* owned; NULL: it has reported none */
    struct ct_samples
        *samples; /* owned: the samples that it works on; NULL: it has reported none */
    struct agent_worker_plan plan;
    struct throttle *throttle; /* NULL: no limit */
    struct output *out;        /* NULL before the start */
    struct output *err;
    struct ct_failure
        failure; /* once it has ended, or never started; cause NONE: success */
};

/* What a worker needs besides its plan. */
struct worker_place {
    const struct worker_options *options;
    const struct ct_join *join; /* slots and roles of this node */
    const char *host;           /* this machine's name */
    bool is_one_node;           /* no other node can join the run */
    const struct ct_start *start;
    const char *socket; /* for CTRUN_AGENT_SOCKET */
    struct loop *loop;
    struct logfile_writer *files;
    struct console *console_out;
    struct console *console_err;
    struct console_dedup *dedup_out; /* NULL: no de-duplication of lines */
    struct console_dedup *dedup_err;
    struct template *template;              /* NULL: there is none */
    const struct recorder_folder *recorder; /* NULL: no reader */
    struct spawn_batch *batch;              /* while workers start */
};

/* Plans what worker `local_rank` will run. On failure worker->failure says why. */
int worker_plan(struct worker *worker, const struct worker_place *place,
                int local_rank);
/* A batch of at most `max` workers that are started, and the end of the batch: then each is
 * starting or runs. */
void worker_open_batch(struct spawn_batch *batch, const struct worker_place *place,
                       int max);
void worker_wait_batch(struct spawn_batch *batch, const struct worker_place *place);
/* Begins the start of the planned worker. On failure worker->failure says why. */
int worker_start(struct worker *worker, const struct worker_place *place);
/* Waits until its program runs. On failure worker->failure says why. */
int worker_confirm(struct worker *worker, const struct worker_place *place);
/* Called when the worker has ended as `death` says (program and started_ms are filled in here):
 * fills failure, last lines included. */
void worker_end(struct worker *worker, const struct worker_place *place,
                struct failure_evidence death);
/* True when the worker runs and has written its error file: then failure is filled with cause
 * CT_CAUSE_RAISED and the file's time, and stays when the worker ends. */
bool worker_has_raised(struct worker *worker, const struct worker_place *place);
/* The worker did not end after SIGKILL. */
void worker_give_up(struct worker *worker, const struct worker_place *place);
/* Starts another worker in the place of this one, and confirms it. On failure worker->failure says
 * why. */
int worker_restart(struct worker *worker, const struct worker_place *place);
/* True when the worker has ended with a failure of its own, not because we stopped it. */
bool worker_has_failed(const struct worker *worker);
/* The worker's role in the round of `start`. */
void worker_find_role(struct ct_role_at *out, const struct worker *worker,
                      const struct ct_join *join, const struct ct_start *start);
/* Adds the role as a fact to the failure, if the node has several roles. */
void worker_add_role(struct ct_failure *failure, const struct worker *worker,
                     const struct ct_join *join, const struct ct_start *start);
/* The worker's file timer `scope` has run out: that is its failure, whatever the worker does on
 * `signal`. */
void worker_expire(struct worker *worker, const char *scope, int signal);
/* Sends signal to its process group (and SIGCONT, so that a stopped one can act on it). */
void worker_signal(struct worker *worker, int signal);
/* KILL or STOP of ctrunctl chaos; 0 or a negative errno. */
int worker_inject(struct worker *worker, const struct ct_fault *fault);
/* The worker continues after a STOP of ctrunctl chaos. */
void worker_resume(struct worker *worker);
/* Passes a signal on to the worker. 0 or -errno. */
int worker_pass_signal(struct worker *worker, int signal);
/* Adds injected faults to the worker's failure. True: a fault is what it died of. */
bool worker_add_chaos(struct ct_failure *failure, const struct worker *worker);
/* Our terminal has another size. */
void worker_resize(struct worker *worker);
void worker_deinit(struct worker *worker);
