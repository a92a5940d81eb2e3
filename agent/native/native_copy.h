/* SPDX-License-Identifier: Apache-2.0 */
/* The registers and the stack of a live thread at one moment.
 *
 * A thread that sleeps in the kernel is not stopped: /proc has its stack pointer and its instruction pointer
 * (enough for most code), and the copy is good if the thread has not run meanwhile. Another thread is stopped by
 * ptrace(2) during the copy; system calls that Linux does not restart then return EINTR in that thread. */
#pragma once

#include <sys/types.h>

#include "agent/native/cfi.h"

enum {
    NATIVE_STACK_MAX_BYTES = 256 * 1024 /* from the innermost frame outwards */
};

struct native_copy {
    struct cfi_frame frame;
    uint64_t start; /* address of the first byte */
    size_t length;
    uint8_t bytes[NATIVE_STACK_MAX_BYTES];
};

/* Without a stop. 0; -EAGAIN: the thread runs; -EPERM: not allowed; -ENOSYS: the kernel has no such
 * file; -ESRCH. */
int native_copy_asleep(struct native_copy *out, pid_t pid, pid_t thread);
/* With a stop. 0; -EPERM: not allowed, or another process traces the thread; -ETIMEDOUT: it did not
 * stop in time, perhaps in the kernel, and is detached; -ENOTSUP: not for this processor; -ESRCH,
 * -EAGAIN. */
int native_copy_stopped(struct native_copy *out, pid_t pid, pid_t thread);
/* For struct cfi_memory; context: the copy. */
bool native_copy_read(void *context, uint64_t address, uint64_t *word);
