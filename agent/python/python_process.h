/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the Python of a live process, and reads the frames of its threads from outside. The process
 * is not stopped, runs none of our code and needs nothing installed. */
#pragma once

#include <sys/types.h>

#include "agent/python/python_frames.h"

struct python_process {
    pid_t pid;
    uint64_t runtime; /* address of its _PyRuntime */
    struct python_offsets offsets;
};

/* Finds the Python in the process: 3.9 to 3.14, a program or a library. 0; -ENOEXEC: there is none;
 * -ENOTSUP: another version, or one without a global lock; -EPERM: the kernel does not let us read
 * the memory; -ESRCH: the process has ended; -ENOMEM. Reads files of the process: may block with
 * its file system. */
int python_process_find(struct python_process *out, pid_t pid);
/* As python_frames_walk(). */
int python_process_walk(const struct python_process *process, struct python_room *room,
                        void (*on_thread)(void *context,
                                          const struct python_thread *thread),
                        void *context);
