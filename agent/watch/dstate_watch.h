/* SPDX-License-Identifier: Apache-2.0 */
/* Finds a process or thread of a worker that waits in the kernel and cannot be interrupted
 * (state D: a dead network file system, a wedged driver), for longer than a limit. There is
 * no event for it: this looks at /proc a few times per limit, and only when it is wanted. */
#pragma once

#include <sys/types.h>

#include "agent/loop/loop.h"

struct dstate_watch;

struct dstate_watch_options {
    struct loop *loop;
    uint64_t limit_ms;
    void *context;
    /* Thread `thread` of `process` has been in D for `for_ms`; called once per start. `where` is
     * the kernel function in which it waits, if the kernel tells. */
    void (*on_stuck)(void *context, pid_t process, pid_t thread, const char *where,
                     uint64_t for_ms);
};

/* 0 or -ENOMEM. */
int dstate_watch_create(struct dstate_watch **out,
                        const struct dstate_watch_options *options);
/* From now on, until stop, all descendants of this process are watched. NULL is fine. */
void dstate_watch_start(struct dstate_watch *stuck);
void dstate_watch_stop(struct dstate_watch *stuck);
void dstate_watch_destroy(struct dstate_watch *stuck);
