/* SPDX-License-Identifier: Apache-2.0 */
/* The C frames of the threads of a live process: each stack is copied (native_copy.h), and its frames are found in
 * the copy afterwards. Of a frame that is not found it is said why; nothing is guessed. x86-64. */
#pragma once

#include "agent/native/native_copy.h"
#include "agent/native/native_modules.h"
#include "agent/native/native_names.h"

enum {
    NATIVE_THREADS_MAX = 256, /* more are left out */
    NATIVE_FRAMES_MAX = 64,   /* of a thread, the innermost */
    NATIVE_NAMES_MS =
        1000 /* for the names of functions, of all processes of a question */
};

/* What is further out than the last frame. */
enum native_end {
    NATIVE_WHOLE,       /* nothing */
    NATIVE_TOO_MANY,    /* more frames than we show */
    NATIVE_NO_CODE,     /* the last place is in no code that is mapped */
    NATIVE_NO_FILE,     /* its file cannot be read */
    NATIVE_NO_ENTRY,    /* its file does not tell how to get further */
    NATIVE_UNREADABLE,  /* what it tells is not understood, or leads nowhere */
    NATIVE_NO_REGISTER, /* that takes a register that is not known */
    NATIVE_NO_MEMORY,   /* that takes memory that was not copied */
    NATIVE_NOT_COPIED /* there is no frame: the thread could not be copied; error says why */
};

struct native_thread {
    pid_t id;
    enum native_end end;
    int error; /* why it could not be stopped, a negative errno; 0: it could, or needed not */
    int count;
    uint64_t places
        [NATIVE_FRAMES_MAX]; /* the innermost first; in the instruction that calls */
};

/* Where a process is read into; overwritten by the next one, but for the names. On the heap, zeroed. */
struct native_room {
    struct native_names names;
    uint64_t until_ms; /* for names; set with the first process */
    struct native_modules modules;
    int count;   /* of threads, ascending */
    bool is_cut; /* there are more */
    struct native_thread threads[NATIVE_THREADS_MAX];
    struct native_copy copy;
    struct cfi_room cfi;
};

/* 0, -EPERM, -ESRCH, -ENOMEM; -ENOTSUP: another processor. Call native_stack_forget() after it, whatever it said. */
int native_stack_read(struct native_room *room, pid_t pid);
void native_stack_forget(struct native_room *room);
/* That thread; NULL: it was not seen. */
const struct native_thread *native_stack_find(const struct native_room *room, pid_t id);
/* "futex_wait (libc.so.6)", or where it is in the file when no function is known there. */
void native_stack_format(char *dst, size_t size, const struct native_room *room,
                         uint64_t place);
