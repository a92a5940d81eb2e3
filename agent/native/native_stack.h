/* SPDX-License-Identifier: Apache-2.0 */
/* The C frames of the threads of a live process: each stack is copied (native_copy.h), and the
 * frames are found in the copy afterwards. If a frame is not found, the reason is given; nothing is
 * guessed. x86-64. */
#pragma once

#include "agent/native/native_copy.h"
#include "agent/native/native_modules.h"
#include "agent/native/native_names.h"

enum {
    NATIVE_THREADS_MAX = 256, /* more are left out */
    NATIVE_FRAMES_MAX = 64,   /* innermost frames of a thread */
    NATIVE_NAMES_MS =
        1000 /* time limit for the names of functions, for all processes of a request */
};

/* Why there are no frames further out than the last. */
enum native_end {
    NATIVE_WHOLE,       /* this is the outermost frame */
    NATIVE_TOO_MANY,    /* more frames than are shown */
    NATIVE_NO_CODE,     /* the last address is in no mapped code */
    NATIVE_NO_FILE,     /* its file cannot be read */
    NATIVE_NO_ENTRY,    /* its file has no entry for this address */
    NATIVE_UNREADABLE,  /* the entry is not understood, or leads nowhere */
    NATIVE_NO_REGISTER, /* the entry needs a register that is not known */
    NATIVE_NO_MEMORY,   /* the entry needs memory that was not copied */
    NATIVE_NOT_COPIED   /* no frame: the thread could not be copied; error says why */
};

struct native_thread {
    pid_t id;
    enum native_end end;
    int error; /* why it could not be stopped, a negative errno; 0: it could, or that was not needed */
    int count;
    uint64_t places
        [NATIVE_FRAMES_MAX]; /* innermost first; addresses in the calling instruction */
};

/* Buffers for one process; overwritten by the next process, except the names. On the heap,
 * zeroed. */
struct native_room {
    struct native_names names;
    uint64_t until_ms; /* time limit for names; set with the first process */
    struct native_modules modules;
    int count;   /* ascending by thread */
    bool is_cut; /* there are more threads */
    struct native_thread threads[NATIVE_THREADS_MAX];
    struct native_copy copy;
    struct cfi_room cfi;
};

/* 0, -EPERM, -ESRCH, -ENOMEM; -ENOTSUP: another processor. Call native_stack_forget() afterwards,
 * after any result. */
int native_stack_read(struct native_room *room, pid_t pid);
void native_stack_forget(struct native_room *room);
/* That thread; NULL: not seen. */
const struct native_thread *native_stack_find(const struct native_room *room, pid_t id);
/* "futex_wait (libc.so.6)", or the offset in the file if no function is known there. */
void native_stack_format(char *dst, size_t size, const struct native_room *room,
                         uint64_t place);
