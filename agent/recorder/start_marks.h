/* SPDX-License-Identifier: Apache-2.0 */
/* When torch has begun and ended init_process_group() in a worker, and its optimizer has made its first step: recorder.py sends
 * a datagram for each to a socket in the recorder's folder, and the kernel says which process has sent it. */
#pragma once

#include "agent/loop/loop.h"
#include "agent/recorder/recorder_folder.h"

struct start_marks;

enum start_mark {
    START_IMPORTED, /* init_process_group() begins: its program is imported */
    START_JOINED,   /* init_process_group() ends */
    START_STEPPED
};

/* `session` is the session of the process, which is the pid of its worker. names, with START_STEPPED: modules that it had imported, in the
 * order of their imports, with commas; "" unless the folder has the file `learn`. */
typedef void start_marks_fn(void *context, pid_t session, enum start_mark mark,
                            const char *names);

/* 0 or a code. `folder` is borrowed for the call. */
int start_marks_open(struct start_marks **out, struct loop *loop,
                     const struct recorder_folder *folder, start_marks_fn *fn,
                     void *context, struct ctrun_error *err);
void start_marks_close(struct start_marks *marks); /* NULL is fine */
