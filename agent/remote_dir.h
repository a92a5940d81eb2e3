/* SPDX-License-Identifier: Apache-2.0 */
/* The folder where the agents of one user keep their sockets for ctrunctl, RUN-PID.sock each:
 * $XDG_RUNTIME_DIR/ctrun, or /tmp/ctrun-UID; CTRUN_CONTROL_DIR names another.
 *
 * A folder counts only when it is ours and closed to everybody else: in /tmp a stranger may
 * have made one with that name. Sockets are reached through the open folder
 * (/proc/self/fd/N/NAME), so that what was checked is what is used, and no path is too long. */
#ifndef AGENT_REMOTE_DIR_H
#define AGENT_REMOTE_DIR_H

#include <limits.h>
#include <sys/types.h>

#include "worker_sdk/base/error.h"

#define REMOTE_DIR_ENV "CTRUN_CONTROL_DIR"

enum {
    REMOTE_DIRS_MAX = 2,
    REMOTE_NAME_MAX = 80,      /* RUN-PID.sock */
    REMOTE_ENTRIES_MAX = 4096, /* of one folder that are looked at */
};

/* Fills in the folders of user `uid`, best first; at least one. Returns their number. The
 * environment counts for our own only. */
int remote_dir_list(char paths[REMOTE_DIRS_MAX][PATH_MAX], uid_t uid);
/* Opens the folder, made when `make` is set. A descriptor, -ENOENT, or a code. root may open a
 * folder of another user. */
int remote_dir_open(const char *path, bool make, struct ctrun_error *err);
/* RUN-PID.sock, with the letters of the run id that suit a file name. */
void remote_dir_name(char name[REMOTE_NAME_MAX], const char *run_id, pid_t pid);
/* Listens on a new socket `name`, mode 0600, in an open folder. A descriptor or -errno. */
int remote_dir_listen(int dir, const char *name);
/* Connects without waiting. A descriptor or -errno; a socket that its agent has left behind
 * (-ECONNREFUSED) is removed. */
int remote_dir_connect(int dir, const char *name);
/* Calls visit for each socket of the folder. */
void remote_dir_walk(int dir, void (*visit)(void *context, int dir, const char *name),
                     void *context);

#endif
