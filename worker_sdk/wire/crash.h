/* SPDX-License-Identifier: Apache-2.0 */
/* The crash record of a worker: a memfd that the worker has sent to its agent at its start, as the
 * descriptor with WORKER_CRASH_RECORD. It outlives the worker.
 *
 *     EMPTY ──a signal──> BEGUN ──all is written──> COMPLETE
 *
 * Written by a signal handler, in the order of the fields. A record in state BEGUN is useful
 * already: count and length are set after the data that they count. The reader must not trust the
 * record. Writer and reader are on the same machine: native numbers, in the compiler's layout. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

enum {
    CT_CRASH_MAGIC = 0x43545243, /* "CTRC" */
    CT_CRASH_VERSION = 1,
    CT_CRASH_FRAMES_MAX = 32,
    CT_CRASH_THREAD_MAX = 16, /* as in the kernel */
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
    int32_t pid;      /* as seen by the process */
    int32_t tid;      /* of the thread */
    uint32_t unused;  /* aligns the next member */
    uint64_t address; /* si_addr; for a signal that was sent (code <= 0): si_pid */
    uint64_t stack;   /* the stack pointer; 0: unknown */
    char thread[CT_CRASH_THREAD_MAX]; /* name of the thread */
    /* Each is raised after its frame or line is written: if the handler crashes or is killed, the
     * data so far stays valid. */
    _Atomic uint32_t frame_count;
    _Atomic uint32_t modules_length;
    uint64_t frames[CT_CRASH_FRAMES_MAX]; /* where it crashed, then return addresses */
    /* Of the handler: it copies memory here that may not be mapped. */
    uint64_t scratch[2];
    /* Lines of /proc/PID/maps: the executable mappings that the frames are in. */
    char modules[CT_CRASH_MODULES_MAX];
};
