/* SPDX-License-Identifier: Apache-2.0 */
/* A batch system starts several tasks on one node, and a number of workers is given: the first task
 * becomes the node's agent, the others wait for its end and return its exit code.
 *
 *     task 0    listens until the others have connected; takes their CPUs too; runs
 *     others    connect, send their CPUs, and sleep in recv() until task 0 sends its exit code
 *
 * The Unix socket is named after run and node, in a folder that is closed to other users
 * (agent/control/ctl_dir.h). If a connection ends without an exit code, task 0 was killed. */
#pragma once

#include <stdbool.h>

#include "agent/process/cpuset.h"
#include "launcher/options/option.h"

enum {
    MERGE_GATHER_MS = 60 *
                      1000 /* a batch system starts a node's tasks within seconds */
};

struct merge {
    bool is_done; /* task 0 has run; `code` is its exit code */
    int code;
    int *fds; /* connections to the other tasks; owned */
    int count;
};

/* Finds out which task of the node this process is, and waits as above. 0: see is_done; else a
 * code such as CTRUN_E_TIMEOUT. Does not merge tasks that are one rank each, or with --dry-run. */
int merge_tasks(struct merge *out, const struct options *options, char *const *env,
                struct ctrun_error *err);
/* Sends our exit code to the other tasks. A zeroed `merge` is fine. */
void merge_close(struct merge *merge, int code);
