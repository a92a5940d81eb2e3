/* SPDX-License-Identifier: Apache-2.0 */
/* Starts programs: own session, dies with its parent, nothing inherited by accident.
 *
 *     struct spawn_batch batch = {.max = 64};
 *     spawn_start() for each ── spawn_wait() ── spawn_check() for each ── spawn_end() */
#ifndef AGENT_PROCESS_SPAWN_H
#define AGENT_PROCESS_SPAWN_H

#include <sys/types.h>

#include "agent/process/bind.h"
#include "worker_sdk/base/error.h"

/* What it points to is kept until spawn_wait() is back. */
struct spawn_request {
    char *const *argv; /* argv[0] is looked up in env's PATH as execvp() would */
    char *const *env;
    int in;                  /* becomes descriptor 0; -1 or 0: ours is inherited */
    int out;                 /* becomes descriptor 1; -1: ours is inherited */
    int err;                 /* becomes descriptor 2 */
    int extra;               /* stays open under its own number; 0: none */
    const struct bind *bind; /* CPUs and limits; NULL: ours */
};

struct spawn {
    pid_t pid;
    int number; /* in its batch */
};

/* Programs that start side by side. Only max is the caller's. */
struct spawn_batch {
    int max;
    int count;
    struct spawn_slot *slots; /* NULL: none was started */
    int report_in;            /* where children tell failures before execve() */
    int report_out;           /* what all of them hold open until then */
};

/* Begins one more, up to max: a child makes its way to the program, which
 *
 *   - has no descriptor above 2, but request->extra,
 *   - default dispositions (what is ignored stays so, SIGPIPE excepted) and the caller's mask,
 *   - has the CPUs and limits of request->bind,
 *   - leads a session of its own and is killed when the calling thread ends,
 *   - was in the run's cgroup (run_cgroup.h) from its first instruction.
 *
 * 0, or a negative errno. */
int spawn_start(struct spawn *spawn, struct spawn_batch *batch,
                const struct spawn_request *request, struct ctrun_error *err);
/* Blocks until each of them runs, that is, execve() has succeeded, or has failed. After the last
 * spawn_start(), whatever that returned. */
void spawn_wait(struct spawn_batch *batch);
/* After that: 0, or the negative errno of what failed; no process is left then. */
int spawn_check(const struct spawn *spawn, const struct spawn_batch *batch,
                struct ctrun_error *err);
/* Frees what is left. Idempotent. */
void spawn_end(struct spawn_batch *batch);

#endif
