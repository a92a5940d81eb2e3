/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker that crashes tells about it: memory of its own (a memfd) that it has sent to its
 * agent before, as the descriptor that comes with WORKER_CRASH_RECORD. It outlives the worker.
 *
 *     EMPTY ──a signal──> BEGUN ──all that was to be found──> COMPLETE
 *
 * Written by a signal handler, in the order of the fields; what is BEGUN is of use already: count
 * and length are set behind what they count. The reader believes nothing of it. Both are of the
 * same machine: native numbers, and no layout but the compiler's. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum {
    CT_CRASH_MAGIC = 0x43545243, /* "CTRC" */
    CT_CRASH_VERSION = 1,
    CT_CRASH_FRAMES_MAX = 32,
    CT_CRASH_THREAD_MAX = 16, /* as the kernel has it */
    CT_CRASH_MODULES_MAX = 12 * 1024,
};

enum ct_crash_state {
    CT_CRASH_EMPTY = 0,
    CT_CRASH_BEGUN = 1,
    CT_CRASH_COMPLETE = 2,
};

struct ct_crash {
    uint32_t magic;
    uint32_t version;
    _Atomic uint32_t state; /* enum ct_crash_state */
    int32_t signal;
    int32_t code;     /* si_code */
    int32_t pid;      /* as the process knows itself */
    int32_t tid;      /* its thread */
    uint32_t unused;  /* what comes is aligned */
    uint64_t address; /* si_addr; for a signal that was sent (code <= 0): si_pid */
    uint64_t stack;   /* the stack pointer; 0: unknown */
    char thread[CT_CRASH_THREAD_MAX]; /* its name */
    /* Each is raised after the frame or the line is there: a handler that crashes or is killed in the
     * middle leaves what it had. */
    _Atomic uint32_t frame_count;
    _Atomic uint32_t modules_length;
    uint64_t frames[CT_CRASH_FRAMES_MAX]; /* where it was, then return addresses */
    uint64_t
        scratch[2]; /* of the handler: memory that may not be there is copied here */
    /* Lines of /proc/PID/maps: the executable mappings that the frames are in. */
    char modules[CT_CRASH_MODULES_MAX];
};
