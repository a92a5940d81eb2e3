/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of one agent where torch's servers in its workers listen (recorder.py), closed to other
 * users: it has recorder.py as sitecustomize.py, and a socket for each process, by its number. */
#pragma once

#include <limits.h>
#include <sys/types.h>

#include "worker_sdk/base/env.h"
#include "worker_sdk/base/error.h"

struct recorder_folder;

/* What agents that were killed have left is removed. 0 or a code. */
int recorder_folder_open(struct recorder_folder **out, struct ctrun_error *err);
void recorder_folder_close(struct recorder_folder *folder); /* NULL is fine */
/* For a worker: its Python finds recorder.py. 0 or -ENOMEM. */
int recorder_folder_set_env(const struct recorder_folder *folder, struct ct_env *env);
/* Where the server of that process would listen. */
void recorder_folder_socket(const struct recorder_folder *folder, char dst[PATH_MAX],
                            pid_t pid);
