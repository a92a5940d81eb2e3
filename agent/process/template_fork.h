/* SPDX-License-Identifier: Apache-2.0 */
/* Workers made by a template (template.h), a batch at a time. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "agent/process/bind.h"
#include "worker_sdk/base/error.h"

/* All pointers are borrowed. */
struct template_worker {
    char *const *argv;
    char *const *env;
    int fds[3]; /* its descriptors 0, 1 and 2 */
    const struct bind
        *bind; /* its CPUs (its limits are the template's); NULL: the template's CPUs */
    pid_t pid; /* result: it is a child of this process, leads a session, and runs */
};

/* How long a batch of `count` may take where the caller may be silent for left_ms. Pure. */
uint64_t template_fork_limit_ms(int count, uint64_t left_ms);
/* Makes all of them, or none. Blocks limit_ms at most. 0, or a negative errno (-ETIMEDOUT: it
 * took longer; -EPIPE: the template is gone): the template must not be used again, and workers
 * that it still makes do not run their programs. */
int template_fork(int socket, struct template_worker *workers, int count,
                  uint64_t limit_ms, struct ctrun_error *err);
