/* SPDX-License-Identifier: Apache-2.0 */
/* A libnccl and a CUDA runtime in one, for one process without a GPU: device memory is the heap,
 * a world has one rank (any size is believed), a stream is a list of one. What goes wrong is
 * said beforehand. The library has the CUDA runtime's name, so that a program that links it has
 * it loaded already when the plug-in asks for one. */
#ifndef TESTS_LIB_FAKE_NCCL_H
#define TESTS_LIB_FAKE_NCCL_H

#include <stdbool.h>

struct fake_nccl {
    int version; /* ncclGetVersion(); 0: a recent one */
    int init_polls; /* the communicator is in progress that often after init; -1 for ever */
    int call_polls;   /* the same, after each call */
    int device_polls; /* the event is not ready that often after each call; -1 for ever */
    int refuse_init;   /* what ncclCommInitRankConfig() returns, if not 0 */
    int refuse_call;   /* what each collective returns */
    int async_error;   /* what the communicator's state becomes after the next poll */
    int finalize_code; /* what ncclCommFinalize() returns */
    bool no_device;    /* there is no GPU */
    bool no_memory;    /* cudaMalloc() of a megabyte and more fails */
    /* What happened. */
    int aborts, destroys, calls;
    int blocks; /* device memory and events that were not freed */
};

extern struct fake_nccl fake_nccl;

#endif
