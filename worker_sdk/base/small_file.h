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
/* The first of /proc/PID/NAME, or of /proc/PID/task/THREAD/NAME where `thread` is not 0. */
ssize_t ct_small_file_of(char *dst, size_t size, pid_t pid, pid_t thread,
                         const char *name);
/* What stands behind `label`, which begins a line of the text, up to its end. NULL: no line begins so. Pure. */
const char *ct_small_file_find(const char *text, const char *label);
/* What /proc/PID/stat, or that of its thread where `thread` is not 0, has after the name, which may hold anything: the
 * state (field 3 of proc(5)) comes first. Written to dst; NULL: there is no such process or thread.
 * Async-signal-safe. */
const char *ct_small_file_stat(char *dst, size_t size, pid_t pid, pid_t thread);
/* The kernel function that a thread waits in; "": none, or it is not shown to us. */
void ct_small_file_wait(char *dst, size_t size, pid_t pid, pid_t thread);
/* When process `pid` was started, in clock ticks since boot; with the pid it names a process for
 * ever. 0: there is none, or nobody knows. */
uint64_t ct_small_file_started(pid_t pid);
/* The processor time of a process without its children, in clock ticks, also of one that has ended and was not reaped.
 * 0: there is none. */
uint64_t ct_small_file_ticks(pid_t pid);
/* Whether the process with this pid and start is certainly gone: no process has the pid, or one
 * that was started at another time. False also where that could not be read. */
bool ct_small_file_has_ended(pid_t pid, uint64_t started);
/* The number of our pid namespace: a pid of another container means nothing here. 0: /proc is not there. */
uint64_t ct_small_file_pid_namespace(void);
