/* SPDX-License-Identifier: Apache-2.0 */
/* Where a live process is, for people: its state, and the frames of a Python in it (agent/python). */
#ifndef AGENT_WATCH_LIVE_STACK_H
#define AGENT_WATCH_LIVE_STACK_H

#include <sys/types.h>

#include "agent/python/python_process.h"
#include "worker_sdk/base/buf.h"

/* Appends
 *
 *     rank 1: pid 4711, Python 3.11
 *       thread 4711, sleeping
 *         load (/home/me/train.py:3)
 *         <module> (/home/me/train.py:9)
 *
 * The Python is that of the process or, where it is a shell or its like, of its only child, and so on.
 * Without one: the name of the program, its state and what it waits for in the kernel. 0 or a code of
 * ct_buf. May block with the file systems of the process. */
int live_stack_write(struct ct_buf *out, int rank, pid_t pid, struct python_room *room);

/* "load (/home/me/train.py:3)": the innermost frame of the oldest thread that is of no library, else
 * the innermost; empty when there is none. Blocks as the above. */
void live_stack_find_place(char *dst, size_t size, pid_t pid, struct python_room *room);

#endif
