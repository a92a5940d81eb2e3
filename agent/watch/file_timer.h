/* SPDX-License-Identifier: Apache-2.0 */
/* The file timer: workers ask through a named pipe to be killed unless they report in time that they
 * are done (torch.distributed.elastic.timer, or any program that writes such a line).
 *
 * A worker sets a timer, named by its pid and a scope, or replaces it; sets it again with a
 * time before 1970 to release it. The caller's parse() knows the format of a line. When
 * a timer runs out the worker gets its signal; one that is still there a grace time later
 * gets SIGKILL. The pipe is made here and removed with the object. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "agent/loop/loop.h"
#include "worker_sdk/base/error.h"

/* One line that a worker wrote to the file timer. */
struct agent_timer {
    int32_t pid;
    int signal;       /* <= 0: no signal when the timer runs out */
    double expires_s; /* seconds since 1970; < 0: released */
    char scope[4096];
};

struct file_timer;

struct file_timer_options {
    struct loop *loop;
    const char *path; /* kept */
    uint64_t grace_ms;
    void *context;
    /* 0 and the meaning of one line, or a negative errno. */
    int (*parse)(void *context, const char *line, size_t length,
                 struct agent_timer *out);
    /* True when pid is a worker, or a process of its session. */
    bool (*is_ours)(void *context, pid_t pid);
    void (*on_expired)(void *context, pid_t pid, const char *scope, int signal);
};

/* Removes a file at the path, but not a directory. */
int file_timer_open(struct file_timer **out, const struct file_timer_options *options,
                    struct ctrun_error *err);
/* Forgets all timers: a new round begins. NULL is fine. */
void file_timer_clear(struct file_timer *file_timer);
void file_timer_close(struct file_timer *file_timer); /* NULL is fine */
