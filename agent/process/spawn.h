/* SPDX-License-Identifier: Apache-2.0 */
/* Starts programs: each leads its own session, dies with its parent, and inherits nothing by
 * accident.
 *
 *     struct spawn_batch batch = {.max = 64};
 *     spawn_start() for each ── spawn_wait() ── spawn_check() for each ── spawn_end() */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/process/bind.h"
#include "worker_sdk/base/error.h"

/* Everything that it points to must live until spawn_wait() returns. */
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
    pid_t pid;  /* 0: the template makes it */
    int number; /* in its batch */
};

/* Programs that start at the same time. The caller sets only max, template and silent_until_ms. */
struct spawn_batch {
    int max;
    int template; /* its socket; 0 or less: there is none */
    /* the caller may send nothing until then, while the template works */
    uint64_t silent_until_ms;
    int count;
    struct spawn_slot *slots; /* NULL: none was started */
    int report_in;            /* where children report failures before execve() */
    int report_out;           /* the end that all children hold open until then */
    /* why the template made none of them and all were started by exec; else empty */
    char why[256];
    int rc; /* ... as template_fork() returned it */
};

/* Begins one more, up to max: a child that becomes the program, which
 *
 *   - has no descriptor above 2, but request->extra,
 *   - has no blocked signals, and default signal actions: ignored signals stay ignored,
 *     except SIGPIPE and SIGXFSZ,
 *   - has the CPUs and limits of request->bind,
 *   - leads a session of its own and is killed when the calling thread ends,
 *   - was in the run's cgroup (run_cgroup.h) from its first instruction.
 *
 * 0, or a negative errno. */
int spawn_start(struct spawn *spawn, struct spawn_batch *batch,
                const struct spawn_request *request, struct ctrun_error *err);
/* Lets the template make its workers, and blocks until execve() of each program has succeeded or
 * failed. Called after the last spawn_start(), whatever that returned. */
void spawn_wait(struct spawn_batch *batch);
/* After spawn_wait(): 0, or the negative errno of the failure; no process is left in that case. */
int spawn_check(const struct spawn *spawn, const struct spawn_batch *batch,
                struct ctrun_error *err);
/* The pid of a program that runs. */
pid_t spawn_pid(const struct spawn *spawn, const struct spawn_batch *batch);
bool spawn_is_forked(const struct spawn *spawn, const struct spawn_batch *batch);
/* Frees the batch. Idempotent. */
void spawn_end(struct spawn_batch *batch);
