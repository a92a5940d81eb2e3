/* SPDX-License-Identifier: Apache-2.0 */
/* The frames of the threads of a CPython, read from its memory by the caller's reader. The program
 * runs on meanwhile: what is read may be of two moments, and every value is checked against a limit
 * before use. Pure except for the reader. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/python/python_offsets.h"

enum {
    PYTHON_THREADS_MAX = 64, /* the newest and the oldest; others are left out */
    PYTHON_FRAMES_MAX = 64,  /* of a thread, the innermost */
    PYTHON_NAME_MAX = 128,
    PYTHON_FILE_MAX = 512
};

struct python_memory {
    void *context;
    /* Reads exactly `length` bytes from `address` on; false if they cannot be read. */
    bool (*read)(void *context, uint64_t address, void *dst, size_t length);
};

struct python_frame {
    char function[PYTHON_NAME_MAX]; /* as Python names it; what is not ASCII is '?' */
    char file[PYTHON_FILE_MAX];
    int line; /* 0: not known */
};

struct python_thread {
    uint64_t native_id; /* thread number as in /proc; 0: not known */
    bool is_cut;        /* there are more frames, further out */
    int count;
    struct python_frame frames[PYTHON_FRAMES_MAX]; /* the innermost first */
};

/* Buffers of one walk. On the heap. */
struct python_room {
    struct python_thread thread;
    uint8_t lines[1 << 16]; /* no line numbers for code with a longer table */
};

/* Calls on_thread for each thread of all interpreters, the oldest of each first; its argument is
 * overwritten by the next. `runtime` is the address of _PyRuntime. Returns the number of threads;
 * 0: none was found. */
int python_frames_walk(const struct python_memory *memory,
                       const struct python_offsets *offsets, uint64_t runtime,
                       struct python_room *room,
                       void (*on_thread)(void *context,
                                         const struct python_thread *thread),
                       void *context);
