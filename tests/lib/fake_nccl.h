/* SPDX-License-Identifier: Apache-2.0 */
/* A libnccl and a CUDA runtime in one, without a GPU. They behave as the real ones in this:
 *
 *   - the host cannot touch device memory (SIGSEGV); copies and kernels have it at another address
 *   - a stream is a queue with a thread; everything on it happens later, each step after `late_us`; the thread
 *     sanitizer finds two steps, or a step and the host, whose order no event and no wait gives
 *   - cudaFree() and the loading of kernels wait for the device, ncclMemFree() does not
 *   - collectives carry data between the processes of a test, added up in rank order; one that
 *     waits for a rank that does not come, or that is not the same on all ranks, spins for ever
 *   - a dead rank is an asynchronous error of the communicator, the kernel spins on; an abort ends
 *     it, its event fires and the stream continues
 *   - a revoked communicator is in progress until its kernels have ended; then it can only be
 *     shrunk. All ranks that are left must exclude the same ranks, and the new one exists when the
 *     old one is no longer in progress
 *   - a split waits for all ranks, and its communicators exist when the old one, on which nothing may run, is no
 *     longer in progress. An abort in between leaves a new one that the caller must abort, too
 *   - memory of the host given to NCCL is an illegal address: every later CUDA call fails
 *   - a stream that is captured runs nothing: its steps become a list, which a graph plays at each
 *     launch. A call that CUDA does not permit meanwhile fails, and invalidates the capture
 *   - a thread has a current device, on which it makes things; memory of another device is an
 *     illegal address for a kernel, and an event is recorded only on streams of its own device
 *   - two threads inside NCCL with one communicator, or a call with one that was aborted: abort()
 *
 * The library has the CUDA runtime's name, so that a program that links it has it loaded already
 * when the plug-in asks for one. One per process; set up before the first call. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "worker_sdk/comm/nccl/nccl_api.h"

struct fake_nccl {
    int version; /* ncclGetVersion(); 0: a recent one */
    int init_polls; /* the communicator is in progress that often after init; -1 for ever */
    int call_polls;      /* the same, after each call */
    unsigned late_us;    /* before each thing on a stream */
    bool hangs;          /* collectives spin until an abort */
    int refuse_init;     /* what ncclCommInitRankConfig() returns, if not 0 */
    int refuse_call;     /* what each collective returns */
    int refuse_split;    /* what ncclCommSplit() returns */
    int split_polls;     /* the communicator is in progress that often after it */
    int refuse_shrink;   /* what ncclCommShrink() returns */
    int refuse_revoke;   /* what ncclCommRevoke() returns */
    int refuse_register; /* what ncclCommRegister() returns */
    int async_error;     /* what the communicator's state becomes after the next poll */
    int finalize_code;   /* what ncclCommFinalize() returns */
    bool no_device;      /* there is no GPU */
    int more_devices;    /* than the first one */
    int slow_device;     /* has fewer processors than the others; 0: none */
    int lean_device;     /* has less memory than the others; 0: none */
    bool no_driver;      /* the driver loads no kernels */
    bool no_memory;      /* cudaMalloc() of a megabyte and more fails */
    void (*on_record)(void); /* called by cudaEventRecord() before it does anything */
    void (*on_fill)(void);   /* called by a stream before it clears memory */
    /* What happened, in any thread. */
    _Atomic int aborts, destroys, calls;
    _Atomic int revokes, shrinks, splits;
    _Atomic int waits;              /* streams that wait for an event now */
    _Atomic int queries;            /* calls of cudaEventQuery() */
    _Atomic int device_waits;       /* calls of cudaDeviceSynchronize() */
    _Atomic int ids;                /* that were made */
    _Atomic int urgent;             /* streams of the highest priority */
    _Atomic int min_ctas, max_ctas; /* that the last communicator was made with */
    _Atomic int roots;              /* ids that the last communicator was made of */
    _Atomic int registered;         /* blocks that are registered */
    _Atomic int
        blocks; /* memory, events, streams and communicators that were not freed */
};

extern struct fake_nccl fake_nccl;
/* False over the real libraries (tests/gpu): then settings do nothing and counters stay 0. */
bool fake_counts(void);

#ifdef PLUGIN_FOLDER
/* At the start of a test: the fake is set so, and groups of the back end "nccl" use it. */
static inline void fake_nccl_use(struct fake_nccl how)
{
    fake_nccl = how;
    setenv("CTRUN_PLUGIN_DIR", PLUGIN_FOLDER, 1);
    setenv("CTRUN_NCCL_LIBRARY", FAKE_NCCL, 1);
}
#endif

/* From now on the n-th call that can fail does fail, counted from 1; 0: none. Returns how many such
 * calls there were since the last time. */
int fake_fail_at(int n);
/* Where a kernel finds memory of the device; NULL when `at` is none. */
void *fake_device(void *at);
/* Puts a kernel on the stream. */
typedef void fake_kernel(void *context);
void fake_launch(void *stream, fake_kernel *kernel, void *context);
/* The same for one that may be captured: `context`, of malloc(), is the kernel's to free; each run gets a copy. */
void fake_launch_copy(void *stream, fake_kernel *kernel, void *context, size_t bytes);
/* Makes the stream late by that many steps of `late_us`. */
void fake_delay(void *stream, int steps);

/* For fake_cuda.c. Every call that can fail begins with the first; true: it must fail. */
bool fake_enter(void);
/* For a call that captures do not permit; true: there is one, and now it is invalid. */
bool fake_spoils_capture(void);
