/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that may block forever on a hung file system, each made on its own thread with a time
 * limit. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Calls that wait for the end of one another. Static, zeroed but for needs_thread. */
struct blocking_lane {
    /* fn is not called where no thread can be had; else it is, without a limit */
    bool needs_thread;
    int out; /* calls that have not returned and whose callers have stopped waiting */
    uint64_t began_ms; /* when the first of them began */
};

/* Calls fn(job) on a thread and waits for it. 0: fn has returned, and job is the caller's again.
 * -ETIMEDOUT: fn has not returned after timeout_ms; the thread keeps job and calls free_job(job)
 * when fn returns. While such a call has not returned, the next call of its lane waits for its
 * end; if the older call has then lasted for longer than the timeout_ms of the next one, fn is
 * not called: free_job(job) and -ETIMEDOUT. So many calls on a hung file system cost the time of
 * the longest, and none waits for longer than timeout_ms. Without memory or a thread for it, fn(job)
 * is called on this thread, without a limit; in a lane that needs a thread it is not called:
 * free_job(job) and -EAGAIN. job is on the heap. Any thread. */
int blocking_call_in(struct blocking_lane *lane, void (*fn)(void *job),
                     void (*free_job)(void *job), void *job, uint64_t timeout_ms);
/* The same, in the lane of all who need none of their own. */
int blocking_call(void (*fn)(void *job), void (*free_job)(void *job), void *job,
                  uint64_t timeout_ms);
/* Calls fn(job) on its own thread and returns at once; fn owns job. 0, or a negative errno when
 * no thread can be created. */
int blocking_call_start(void *(*fn)(void *job), void *job);
/* A file to look for. */
struct blocking_file {
    const char *path; /* borrowed for the call; NULL: no file */
    bool is_there;
    uint64_t written_ns; /* by this host's clock; 0: by another clock, as on NFS */
};
/* Looks for all files in one blocking_call(). On a timeout every file counts as absent. */
void blocking_call_find_files(struct blocking_file *files, int count,
                              uint64_t timeout_ms);
