/* SPDX-License-Identifier: Apache-2.0 */
/* Starts one program: own session, dies with its parent, nothing inherited by accident. */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include <sys/types.h>

#include "agent/bind.h"
#include "worker_sdk/base/error.h"

struct spawn_request {
    char *const *argv; /* argv[0] is looked up in env's PATH as execvp() would */
    char *const *env;
    int out; /* becomes descriptor 1; -1: ours is inherited. Standard input always is */
    int err; /* becomes descriptor 2 */
    const struct bind *bind; /* CPUs and limits; NULL: ours */
};

struct spawn {
    pid_t pid;
    int report; /* where a failure before execve() is told; closed by its success */
};

/* Forks and lets the child make its way to the program, which
 *
 *   - has no descriptor above 2,
 *   - default dispositions (what is ignored stays so, SIGPIPE excepted) and the caller's mask,
 *   - has the CPUs and limits of request->bind,
 *   - leads a session of its own and is killed when the calling thread ends.
 *
 * 0, or a negative errno. Many may be under way at once: each wants its spawn_wait(). */
int spawn_start(struct spawn *spawn, const struct spawn_request *request,
                struct ctrun_error *err);
/* Blocks until the program runs, that is: execve() has succeeded, and returns 0. Else the
 * negative errno of what failed; no process is left then. */
int spawn_wait(struct spawn *spawn, const char *program, struct ctrun_error *err);

#endif
