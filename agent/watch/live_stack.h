/* SPDX-License-Identifier: Apache-2.0 */
/* Where a live process is in its code, as readable text: its state, its Python frames (agent/python), and its C
 * frames (live_native.h). */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "agent/python/python_process.h"
#include "agent/watch/live_native.h"
#include "worker_sdk/base/buf.h"

enum {
    LIVE_PLACE_MAX = 512
};

/* Memory of one call. On the heap, zeroed. */
struct live_room {
    struct python_room python;
    struct live_native native;
};

/* Appends
 *
 *     rank 1: pid 4711, Python 3.11, sleeping
 *       thread 4711, sleeping
 *         in __futex_abstimed_wait_common (libc.so.6)
 *         in PyThread_acquire_lock_timed (python3.11)
 *         load (/home/me/train.py:3)
 *         <module> (/home/me/train.py:9)
 *       3 threads, 4712 4713 4714, sleeping
 *         in ...
 *
 * The Python is that of the process or, if the process is a shell or similar, of its only child, and so on.
 * If the first thread of that Python waits for its only child, which is a Python, too, the child is in front.
 * Without Python: the name of the program, its state, the kernel function in which it waits, and its C frames.
 * 0 or a code of ct_buf. May block with the file systems of the process. */
int live_stack_write(struct ct_buf *out, int rank, pid_t pid, struct live_room *room);

/* Where the oldest thread of a Python process (of the innermost one, if others wait for it) is, as "load (/home/me/train.py:3)"; empty: not
 * known. */
struct live_place {
    char own
        [LIVE_PLACE_MAX]; /* the innermost frame outside libraries, else the innermost */
    char inner[LIVE_PLACE_MAX]; /* the innermost */
    bool is_python;   /* the process has a Python of a version that can be read */
    bool meets;       /* in a call of torch.distributed */
    bool is_backward; /* in a backward pass: it computes, or waits in a collective */
};

/* Blocks like live_stack_write(). */
void live_stack_find_place(struct live_place *out, pid_t pid, struct python_room *room);
/* The only child of a process; 0: none, or several. */
pid_t live_stack_only_child(pid_t pid);
