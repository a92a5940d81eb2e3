/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of one agent in which torch's servers in its workers listen (recorder.py), closed to
 * other users: it has recorder.py as sitecustomize.py, and a socket for each process, named by its
 * pid; empty files `serve` and `learn` where that is wanted. */
#pragma once

#include <limits.h>
#include <sys/types.h>

#include "worker_sdk/base/env.h"
#include "worker_sdk/base/error.h"

struct recorder_folder;

enum {
    RECORDER_SERVE = 1, /* torch's servers are to be started */
    RECORDER_LEARN = 2  /* the first step comes with names of modules (start_marks.h) */
};

/* Removes what killed agents have left. wants: RECORDER_SERVE and RECORDER_LEARN. 0 or a code. */
int recorder_folder_open(struct recorder_folder **out, unsigned wants,
                         struct ctrun_error *err);
void recorder_folder_close(struct recorder_folder *folder); /* NULL is fine */
/* Sets a worker's environment so that its Python finds recorder.py. 0 or -ENOMEM. */
int recorder_folder_set_env(const struct recorder_folder *folder, struct ct_env *env);
/* The socket path of the server in that process. */
void recorder_folder_socket(const struct recorder_folder *folder, char dst[PATH_MAX],
                            pid_t pid);
/* The path of all sockets with a slash at its end; "" for NULL. */
void recorder_folder_sockets(const struct recorder_folder *folder, char dst[PATH_MAX]);
