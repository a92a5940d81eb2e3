/* SPDX-License-Identifier: Apache-2.0 */
/* Saves where the threads of hanging processes are, before these are ended: at once what /proc says
 * and the frames of Python and C (live_stack.h), and a debugger's view (py-spy for Python if it is
 * installed, else gdb) as far as there is time. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "agent/loop/loop.h"

enum {
    STACKS_MAX = 256 /* processes; more are left out */
};

struct stacks;

struct stacks_target {
    pid_t pid;
    int rank;
    char path[PATH_MAX]; /* of the file to write */
    char *dump;          /* for flight_recorder.json beside it; owned; NULL: none */
};

/* 0 or -ENOMEM. */
int stacks_create(struct stacks **out, struct loop *loop);
void stacks_destroy(struct stacks *stacks); /* NULL is fine; debuggers are killed */
/* Takes ownership of targets (heap) and calls done once, perhaps before it returns and at most some
 * seconds later. is_saved is false if not even what /proc says could be written in time. */
void stacks_save(struct stacks *stacks, struct stacks_target *targets, int count,
                 void (*done)(void *context, bool is_saved), void *context);
/* done is not called any more. */
void stacks_cancel(struct stacks *stacks);
