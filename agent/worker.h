/* SPDX-License-Identifier: Apache-2.0 */
/* One worker of this node in one round: NEW ──start──> RUNNING ──exit──> ENDED. */
#ifndef AGENT_WORKER_H
#define AGENT_WORKER_H

#include "agent/agent.h"
#include "agent/evidence.h"
#include "agent/output.h"
#include "agent/spawn.h"

enum worker_state {
    WORKER_NEW,
    WORKER_RUNNING,
    WORKER_ENDED
};

struct worker {
    enum worker_state state;
    struct spawn spawn;
    pid_t pid;
    int local_rank;
    int rank;
    int stop_signal;      /* the last signal that we sent; 0: none */
    int timer_signal;     /* sent because its file timer ran out; 0: none did */
    char timer_text[256]; /* which one */
    uint64_t started_ms;
    int64_t step;        /* last one told; -1: none */
    uint64_t stepped_ms; /* when */
    struct agent_worker_plan plan;
    struct output *out; /* NULL before the start */
    struct output *err;
    struct ct_failure
        failure; /* once ENDED, or never started; cause NONE: it did well */
};

/* What a worker needs besides its plan. */
struct worker_place {
    const struct agent_options *options;
    const struct ct_start *start;
    const char *socket; /* for CTRUN_AGENT_SOCKET */
    struct loop *loop;
    struct logfile_writer *files;
    struct console *console_out;
    struct console *console_err;
    struct chorus *chorus_out; /* NULL: lines are not collapsed */
    struct chorus *chorus_err;
    struct spawn_batch *batch; /* while workers start */
};

/* What worker `local_rank` will run, and with what. On failure worker->failure says why. */
int worker_plan(struct worker *worker, const struct worker_place *place,
                int local_rank);
/* Sends the planned one on its way. On failure worker->failure says why. */
int worker_start(struct worker *worker, const struct worker_place *place);
/* Waits until its program runs. On failure worker->failure says why. */
int worker_confirm(struct worker *worker, const struct worker_place *place);
/* It has ended as `death` says (program and started_ms are filled in here): fills failure, last
 * words included. */
void worker_end(struct worker *worker, const struct worker_place *place,
                struct evidence death);
/* It did not die of SIGKILL. */
void worker_give_up(struct worker *worker, const struct worker_place *place);
/* Its file timer `scope` has run out: that is its failure, whatever it makes of `signal`. */
void worker_expire(struct worker *worker, const char *scope, int signal);
/* Sends signal to its process group (and SIGCONT, so that a stopped one can act on it). */
void worker_signal(struct worker *worker, int signal);
void worker_deinit(struct worker *worker);

#endif
