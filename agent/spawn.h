/* SPDX-License-Identifier: Apache-2.0 */
/* Starts one program: own session, dies with its parent, nothing inherited by accident. */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include <sys/types.h>

#include "worker_sdk/base/error.h"

struct spawn_request {
    char *const *argv; /* argv[0] is looked up in env's PATH as execvp() would */
    char *const *env;
    int out; /* becomes descriptor 1; -1: ours is inherited. Standard input always is */
    int err; /* becomes descriptor 2 */
};

/* Returns 0 and *pid once the program runs, that is: execve() has succeeded. Else the negative
 * errno of what failed, and no process is left. Blocks for the exec, as vfork does.
 *
 * The program has no descriptor above 2, default dispositions (ignored signals stay ignored,
 * SIGPIPE excepted), the calling thread's signal mask, a session of its own, and is killed when
 * the calling thread ends. */
int spawn_start(const struct spawn_request *request, pid_t *pid,
                struct ctrun_error *err);
#endif
