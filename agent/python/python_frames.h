/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of the threads of a CPython, read from its memory by whoever gives a reader for it. The
 * program runs on meanwhile: what is read may be of two moments, and nothing of it is believed that
 * a limit of ours does not hold. Pure but for the reader. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/python/python_offsets.h"

enum {
    PYTHON_THREADS_MAX = 64, /* the newest; more are left out */
    PYTHON_FRAMES_MAX = 64,  /* of a thread, the innermost */
    PYTHON_NAME_MAX = 128,
    PYTHON_FILE_MAX = 512
};

struct python_memory {
    void *context;
    /* Exactly `length` bytes from `address` on; false when they are not there. */
    bool (*read)(void *context, uint64_t address, void *dst, size_t length);
};

struct python_frame {
    char function[PYTHON_NAME_MAX]; /* as Python names it; what is not ASCII is '?' */
    char file[PYTHON_FILE_MAX];
    int line; /* 0: not known */
};

struct python_thread {
    uint64_t native_id; /* as /proc numbers it; 0: not known */
    bool is_cut;        /* there are more frames, further out */
    int count;
    struct python_frame frames[PYTHON_FRAMES_MAX]; /* the innermost first */
};

/* Where a walk works; overwritten by it. On the heap. */
struct python_room {
    struct python_thread thread;
    uint8_t lines[1 << 16]; /* of a code with a longer table no line is known */
};

/* Calls on_thread for each thread of all interpreters, the oldest of each first; what it is given is
 * overwritten by the next. `runtime` is the address of _PyRuntime. The number of threads; 0: none was
 * found there. */
int python_frames_walk(const struct python_memory *memory,
                       const struct python_offsets *offsets, uint64_t runtime,
                       struct python_room *room,
                       void (*on_thread)(void *context,
                                         const struct python_thread *thread),
                       void *context);
