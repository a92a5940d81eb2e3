/* SPDX-License-Identifier: Apache-2.0 */
/* When torch's optimizer has made its first step in a worker: recorder.py sends a datagram to a socket
 * in the recorder's folder, and the kernel says which process has sent it. */
#pragma once

#include "agent/loop/loop.h"
#include "agent/recorder/recorder_folder.h"

struct first_step;

/* `session` is the session of the process, which is the pid of its worker. names: modules that it had imported, in the
 * order of their imports, with commas; "" unless the folder has the file `learn`. */
typedef void first_step_fn(void *context, pid_t session, const char *names);

/* 0 or a code. `folder` is borrowed for the call. */
int first_step_open(struct first_step **out, struct loop *loop,
                    const struct recorder_folder *folder, first_step_fn *fn,
                    void *context, struct ctrun_error *err);
void first_step_close(struct first_step *first_step); /* NULL is fine */
