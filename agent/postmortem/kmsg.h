/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the kernel about processes that it killed for lack of memory, and about broken
 * devices, where we may read its log. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* "Memory cgroup out of memory: Killed process 812 (python3) total-vm:..., anon-rss:...",
 * written after since_ms (monotonic). False when there is none, when /dev/kmsg cannot be read,
 * or in a PID namespace, where the kernel's pid is not ours. *has_other: before that, or if there is none, it reports
 * the kill of another process. */
bool kmsg_find_kill(char *dst, size_t size, pid_t pid, uint64_t since_ms,
                    bool *has_other);
/* The first line written after since_ms for which `fits` is true. Each read() of fd returns one
 * record and does not block, as with /dev/kmsg. */
bool kmsg_find_line(int fd, char *dst, size_t size, uint64_t since_ms,
                    bool (*fits)(void *context, const char *line), void *context);
/* One record, "6,339,5140900,-;text". True when it reports the kill of that process; pid 0: of any. Pure. */
bool kmsg_is_kill(const char *record, pid_t pid, uint64_t since_ms, const char **text);
