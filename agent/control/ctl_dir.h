/* SPDX-License-Identifier: Apache-2.0 */
/* The folder where the agents of one user keep their sockets: RUN-PID.sock for ctrunctl,
 * RUN-PID.worker for their workers. It is $XDG_RUNTIME_DIR/ctrun, or /tmp/ctrun-UID;
 * CTRUN_CONTROL_DIR names another folder.
 *
 * A folder is used only if it is ours and closed to others: in /tmp another user may have made
 * one with that name. In that case the folder is /tmp/ctrun-UID-XXXXXX, which nobody can guess,
 * and which readers find by its owner. Sockets are opened through the folder's descriptor
 * (/proc/self/fd/N/NAME), so that the folder that was checked is the one that is used, and no
 * path is too long. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "worker_sdk/base/error.h"

#define CTL_DIR_ENV "CTRUN_CONTROL_DIR"

enum {
    CTL_DIRS_MAX = 6,
    CTL_DIR_NAME_MAX = 80,      /* RUN-PID.NAMESPACE.worker */
    CTL_DIR_ENTRIES_MAX = 4096, /* limit of folders that are looked at */
};

#define CTL_SOCKET_SUFFIX ".sock"
#define CTL_WORKER_SUFFIX ".worker"
#define CTL_MERGE_SUFFIX                                                               \
    ".merge" /* of the tasks of one node, which meet there at their start */

/* Fills in the folders of user `uid`, best first; at least one. Returns their number. The
 * environment is used for our own user only; without $XDG_RUNTIME_DIR the folder of a login
 * session is listed, too. */
int ctl_dir_list(char paths[CTL_DIRS_MAX][PATH_MAX], uid_t uid);
/* Opens the first of our own folders that can be used or made; `path` gets its path. With
 * `in_tmp`, only folders below /tmp, or the one that CTRUN_CONTROL_DIR names if its path has
 * `max` bytes at most. A descriptor or a code. */
int ctl_dir_choose(char path[PATH_MAX], size_t max, bool in_tmp,
                   struct ctrun_error *err);
/* Opens the folder; `make`: makes it if it is missing. A descriptor, -ENOENT, or a code. root
 * may open a folder of another user. */
int ctl_dir_open(const char *path, bool make, struct ctrun_error *err);
/* RUN-NUMBER and `suffix`. RUN is the beginning of the run id, with '_' for characters that do
 * not suit a file name. */
void ctl_dir_name(char name[CTL_DIR_NAME_MAX], const char *run_id, pid_t number,
                  const char *suffix);
/* The same with our pid. In a container with a PID namespace: RUN-PID.NAMESPACE, because two
 * containers that share /tmp may have the same pids. */
void ctl_dir_own_name(char name[CTL_DIR_NAME_MAX], const char *run_id,
                      const char *suffix);
/* True when the name belongs to an agent of our PID namespace: on the host, or in this
 * container. */
bool ctl_dir_is_here(const char *name, const char *suffix);
/* True when it is such a name, of any process, for this run or for one whose id looks the same.
 * `name` ends with `suffix`. */
bool ctl_dir_is_of_run(const char *name, const char *run_id, const char *suffix);
/* Removes the sockets with that suffix whose agent is gone. Of an agent's own socket (RUN-PID.sock)
 * a mark with the time now_ms stays (ctl_mark.h); marks and CTL_MERGE_SUFFIX that are too old are removed,
 * too. */
void ctl_dir_sweep(int dir, const char *suffix, uint64_t now_ms);
/* Listens on a new socket `name`, mode 0600, in an open folder; `type` as for socket(). A
 * non-blocking descriptor, or -errno. */
int ctl_dir_listen(int dir, const char *name, int type);
/* Connects without waiting. A descriptor or -errno; a socket that its agent has left behind
 * (-ECONNREFUSED; RUN-PID.sock only) is removed, as by ctl_dir_sweep(). */
int ctl_dir_connect(int dir, const char *name, int type);
/* Calls visit for each socket of the folder with that suffix. */
void ctl_dir_walk(int dir, const char *suffix,
                  void (*visit)(void *context, int dir, const char *name),
                  void *context);
