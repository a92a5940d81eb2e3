/* SPDX-License-Identifier: Apache-2.0 */
/* The C frames of a live process as readable text (agent/native). */
#pragma once

#include <stdbool.h>

#include "agent/native/native_stack.h"
#include "agent/watch/live_state.h"
#include "worker_sdk/base/buf.h"

/* On the heap, zeroed. */
struct live_native {
    struct native_room room;
    bool is_written[NATIVE_THREADS_MAX]; /* by the index of the thread */
    char states[NATIVE_THREADS_MAX][LIVE_STATE_MAX];
};

/* Reads the process; the other functions use what was read. Returns as native_stack_read(). Blocks
 * with the file systems of the process. */
int live_native_read(struct live_native *native, pid_t pid);
/* True if that thread was seen. */
bool live_native_has(const struct live_native *native, uint64_t thread);
/* Appends the frames of that thread, "    in futex_wait (libc.so.6)", and what is not known; for a
 * thread that runs Python only the frames inside its interpreter. Nothing for a thread that was not
 * seen. 0 or a code of ct_buf. */
int live_native_write(struct ct_buf *out, struct live_native *native, uint64_t thread);
/* Appends all threads that have not been appended, threads at the same place together; if `why`,
 * the result of live_native_read(), is an error, appends that there are no C frames. Forgets the
 * process. */
int live_native_write_others(struct ct_buf *out, struct live_native *native, int why);
