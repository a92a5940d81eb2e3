/* SPDX-License-Identifier: Apache-2.0 */
/* Workers made by a template (template.h), a batch at a time. */
#ifndef AGENT_PROCESS_TEMPLATE_FORK_H
#define AGENT_PROCESS_TEMPLATE_FORK_H

#include <sys/types.h>

#include "agent/process/bind.h"
#include "worker_sdk/base/error.h"

/* All is borrowed. */
struct template_worker {
    char *const *argv;
    char *const *env;
    int fds[3]; /* its descriptors 0, 1 and 2 */
    const struct bind
        *bind; /* its CPUs; its limits are the template's. NULL: the template's, too */
    pid_t pid; /* set: it is a child of this process, leads a session, and runs */
};

/* Makes all of them, or none. Blocks TEMPLATE_FORK_MS at most. 0, or a negative errno: the template is
 * not to be used again, and what it may still make does not run its program. */
int template_fork(int socket, struct template_worker *workers, int count,
                  struct ctrun_error *err);

#endif
