/* SPDX-License-Identifier: Apache-2.0 */
/* Small text files, such as those of /proc and /sys: one open(), one read(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The first size - 1 bytes of the file, terminated; "" on failure. Their number, or -errno.
 * Async-signal-safe. */
ssize_t ct_small_file_read(char *dst, size_t size, const char *path);
/* The same, of the first line, without its newline. */
ssize_t ct_small_file_line(char *dst, size_t size, const char *path);
/* As ct_small_file_read(), for /proc/PID/NAME, or /proc/PID/task/THREAD/NAME if `thread` is not
 * 0. */
ssize_t ct_small_file_of(char *dst, size_t size, pid_t pid, pid_t thread,
                         const char *name);
/* The text after `label` in the line that begins with it; not terminated. NULL: no such line.
 * Pure. */
const char *ct_small_file_find(const char *text, const char *label);
/* Reads /proc/PID/stat, or that of the thread if `thread` is not 0, into dst. Returns the fields
 * after the name, as a name may have any bytes: the state (field 3 of proc(5)) comes first. NULL:
 * no such process or thread. Async-signal-safe. */
const char *ct_small_file_stat(char *dst, size_t size, pid_t pid, pid_t thread);
/* The kernel function that a thread waits in; "": none, or no permission. */
void ct_small_file_wait(char *dst, size_t size, pid_t pid, pid_t thread);
/* When process `pid` was started, in clock ticks since boot; pid and start time together identify a
 * process. 0: no such process, or not known. */
uint64_t ct_small_file_started(pid_t pid);
/* The processor time of a process without its children, in clock ticks, also of one that has ended and was not reaped.
 * 0: there is none. */
uint64_t ct_small_file_ticks(pid_t pid);
/* Fills in the children of a process, whichever of its threads has started them: `max` at most. Their
 * number; 0 also where the kernel was built without these lists. */
int ct_small_file_children(pid_t *list, int max, pid_t pid);
/* Whether the process with this pid and start is certainly gone: no process has the pid, or one
 * that was started at another time. False also where that could not be read. */
bool ct_small_file_has_ended(pid_t pid, uint64_t started);
/* The number of our pid namespace: pids of another namespace are not valid here. 0: no /proc. */
uint64_t ct_small_file_pid_namespace(void);
/* True where /proc is not there, or that of another pid namespace: its numbers are other processes. */
bool ct_small_file_is_foreign(void);
