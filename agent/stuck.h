/* SPDX-License-Identifier: Apache-2.0 */
/* Notices a process or thread of a worker that sits in the kernel and cannot be interrupted
 * (state D: a dead network file system, a wedged driver), for longer than a limit. There is
 * no event for it: this looks at /proc a few times per limit, and only when it is wanted. */
#ifndef AGENT_STUCK_H
#define AGENT_STUCK_H

#include <sys/types.h>

#include "agent/loop.h"

struct stuck;

struct stuck_options {
    struct loop *loop;
    uint64_t limit_ms;
    void *context;
    /* Thread `thread` of `process` has been in D for `for_ms`; told once a watch. `where` is
     * the kernel function it waits in, as far as the kernel tells. */
    void (*on_stuck)(void *context, pid_t process, pid_t thread, const char *where,
                     uint64_t for_ms);
};

/* 0 or -ENOMEM. */
int stuck_create(struct stuck **out, const struct stuck_options *options);
/* From now on all descendants of this process are watched; until stop. NULL is fine. */
void stuck_start(struct stuck *stuck);
void stuck_stop(struct stuck *stuck);
void stuck_destroy(struct stuck *stuck);

#endif
