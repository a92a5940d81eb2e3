/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's own words on a process that it killed for memory, and on broken devices, where we may read them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* "Memory cgroup out of memory: Killed process 812 (python3) total-vm:..., anon-rss:...", of the
 * time since since_ms (monotonic). False when there is none, when /dev/kmsg cannot be read, or in
 * a PID namespace, where the kernel's number is not ours. */
bool kmsg_find_kill(char *dst, size_t size, pid_t pid, uint64_t since_ms);
/* The first line of that time that `fits`, from a descriptor that gives a record for each read(), as that of
 * /dev/kmsg does, and does not block. */
bool kmsg_find_line(int fd, char *dst, size_t size, uint64_t since_ms,
                    bool (*fits)(const char *line));
/* One record, "6,339,5140900,-;text". True when it says so of that process. Pure. */
bool kmsg_is_kill(const char *record, pid_t pid, uint64_t since_ms, const char **text);
