/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that a hung file system would never let return, made on a thread of their own. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Calls fn(job) and waits for it. 0: it is done, and job is the caller's again. -ETIMEDOUT: it
 * is not back after timeout_ms; the thread keeps job and calls free_job(job) when it is. As
 * long as one such is out, the next waits for it to come back, until it has lasted for timeout_ms
 * of the next; then that is not made at all: free_job(job) and -ETIMEDOUT. So many of them cost
 * the time of the longest. job is on the heap. Any thread. */
int blocking_call(void (*fn)(void *job), void (*free_job)(void *job), void *job,
                  uint64_t timeout_ms);
/* Calls fn(job) on a thread of its own and returns at once; fn sees to job's end. 0, or a
 * negative errno when no thread was to be had. */
int blocking_call_start(void *(*fn)(void *job), void *job);
/* A file to look for. */
struct blocking_file {
    const char *path; /* borrowed for the call; NULL: no file */
    bool is_there;
    uint64_t written_ns; /* by this host's clock; 0: another clock's, as on NFS */
};
/* Looks for all of them in one such call. After timeout_ms none counts as there. */
void blocking_call_find_files(struct blocking_file *files, int count,
                              uint64_t timeout_ms);
