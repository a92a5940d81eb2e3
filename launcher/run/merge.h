/* SPDX-License-Identifier: Apache-2.0 */
/* Several tasks of a batch system on one node, and workers that are asked for: the first task
 * becomes the node's agent, the others wait for its end and return its exit code.
 *
 *     task 0    listens, and waits until the others are here; takes their CPUs too; runs
 *     others    connect, tell their CPUs, and sleep in read() until task 0 tells its exit code
 *
 * They meet at a Unix socket that is named after run and node, in a folder that is closed to other
 * users (agent/control/ctl_dir.h). A connection that ends without a word is an agent that was killed. */
#pragma once

#include <stdbool.h>

#include "agent/process/cpuset.h"
#include "launcher/options/option.h"

enum {
    MERGE_GATHER_MS = 60 *
                      1000 /* a batch system starts a node's tasks within seconds */
};

struct merge {
    bool is_done; /* another task has run: `code` is its exit code */
    int code;
    int *fds; /* of the others, owned */
    int count;
};

/* Finds out which of this node's tasks we are, and waits as above. 0: see is_done; else a code:
 * CTRUN_E_TIMEOUT, ... Does nothing where each task has a job of its own, and with --dry-run. */
int merge_tasks(struct merge *out, const struct options *options, char *const *env,
                struct ctrun_error *err);
/* Tells the others our exit code. Accepts a zeroed one. */
void merge_close(struct merge *merge, int code);
