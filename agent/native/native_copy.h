/* SPDX-License-Identifier: Apache-2.0 */
/* The registers and the stack of a live thread at one moment.
 *
 * One that sleeps in the kernel is not touched: /proc tells where its stack is and where it continues (two registers
 * that are enough for most code), and the copy is good when it has not run meanwhile. Another one is stopped by
 * ptrace(2) for as long as it takes to copy; system calls that Linux does not restart then return EINTR in it. */
#pragma once

#include <sys/types.h>

#include "agent/native/cfi.h"

enum {
    NATIVE_STACK_MAX_BYTES = 256 * 1024 /* from the innermost frame outwards */
};

struct native_copy {
    struct cfi_frame frame;
    uint64_t start; /* address of the first of the bytes */
    size_t length;
    uint8_t bytes[NATIVE_STACK_MAX_BYTES];
};

/* Without a stop. 0; -EAGAIN: it runs; -EPERM: the kernel does not let us; -ENOSYS: it does not tell; -ESRCH. */
int native_copy_asleep(struct native_copy *out, pid_t pid, pid_t thread);
/* With a stop. 0; -EPERM: the kernel does not let us, or somebody else traces it; -ETIMEDOUT: it did not stop in time,
 * as in the kernel, and is let go; -ENOTSUP: of this processor no registers are known; -ESRCH, -EAGAIN. */
int native_copy_stopped(struct native_copy *out, pid_t pid, pid_t thread);
/* For struct cfi_memory; context: the copy. */
bool native_copy_read(void *context, uint64_t address, uint64_t *word);
