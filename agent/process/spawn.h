/* SPDX-License-Identifier: Apache-2.0 */
/* Starts programs: own session, dies with its parent, nothing inherited by accident.
 *
 *     struct spawn_batch batch = {.max = 64};
 *     spawn_start() for each ── spawn_wait() ── spawn_check() for each ── spawn_end() */
#pragma once

#include <stdbool.h>
#include <stdint.h>
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
    bool may_fork;           /* the template can become it (template_fork.h) */
};

struct spawn {
    pid_t pid;  /* 0: of one that the template is to become */
    int number; /* in its batch */
};

/* Programs that start side by side. Only max, template and silent_until_ms are the caller's. */
struct spawn_batch {
    int max;
    int template;             /* its socket; 0 or less: there is none */
    uint64_t silent_until_ms; /* the caller may be, while it makes them */
    int count;
    struct spawn_slot *slots; /* NULL: none was started */
    int report_in;            /* where children tell failures before execve() */
    int report_out;           /* what all of them hold open until then */
    char why
        [256]; /* the template made none of them, all were started by exec; empty: else */
    int rc;    /* ... as template_fork() returned it */
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
/* Makes those that the template can become, and blocks until each of them runs, that is, execve() has
 * succeeded, or has failed. After the last spawn_start(), whatever that returned. */
void spawn_wait(struct spawn_batch *batch);
/* After that: 0, or the negative errno of what failed; no process is left then. */
int spawn_check(const struct spawn *spawn, const struct spawn_batch *batch,
                struct ctrun_error *err);
/* Of any that runs. */
pid_t spawn_pid(const struct spawn *spawn, const struct spawn_batch *batch);
bool spawn_is_forked(const struct spawn *spawn, const struct spawn_batch *batch);
/* Frees what is left. Idempotent. */
void spawn_end(struct spawn_batch *batch);
