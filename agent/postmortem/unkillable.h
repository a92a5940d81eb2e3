/* SPDX-License-Identifier: Apache-2.0 */
/* A process that SIGKILL does not end: where it waits, and which devices it keeps from others. */
#pragma once

#include <sys/types.h>

#include "worker_sdk/wire/message.h"

enum {
    UNKILLABLE_WHERE_MAX = 256
};

/* "state D, kernel __refrigerator (frozen by cgroup /x); holds /dev/nvidia3"; as far as /proc
 * says. dst has UNKILLABLE_WHERE_MAX bytes. */
void unkillable_describe(char *dst, pid_t pid);
/* The same for a process that SIGKILL was not tried on: devices only in state D, because each
 * rank on a GPU has its devices open. */
void unkillable_describe_stuck(char *dst, pid_t pid);
/* One of the processes below us that still live; 0: none. */
pid_t unkillable_find(void);
/* Adds that text, what we do now and what people should do, to the facts. */
void unkillable_explain(struct ct_failure *failure, pid_t pid);
