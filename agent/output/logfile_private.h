/* SPDX-License-Identifier: Apache-2.0 */
/* What logfile.c (files), logfile_writer.c (the thread, as the loop sees it) and
 * logfile_thread.c (what it does) share.
 *
 * One mutex for all queues. The thread takes a whole queue by swapping buffers and writes with
 * the mutex released, so that the loop never waits for more than a swap. A target that has
 * something to do stands in the list `ready`; one thread serves it at a time, in turn. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "agent/output/logfile.h"
#include "agent/output/logrotate.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/list.h"

/* A file on disk. */
struct logfile_target {
    struct ct_list node; /* of the writer's targets */
    struct ct_list
        ready; /* of the writer's ready list while there is something to do */
    struct ct_list users; /* struct logfile; none left: close it once all is written */
    char *path;
    int keep;
    bool is_broken;    /* given up: what is pushed goes nowhere */
    bool appends;      /* what is there stays; the thread's own */
    uint64_t left_out; /* bytes since the file system stopped to answer */
    struct ct_buf queue;
    struct ct_buf taken; /* from here on the thread's own */
    struct logrotate cap;
    int fd;
};

struct logfile {
    struct ct_list node;
    struct ct_list roomy; /* of the writer's list of those that must be called */
    struct logfile_writer *writer;
    struct logfile_target *target;
    bool wants_room;
    void (*on_room)(void *context);
    void *context;
};

/* Two threads: the loop fills queues and never waits for a disk, the writer's thread empties them. The
 * mutex protects the lists, the targets' queues, `busy`, `is_ending`, `is_ended` and `is_stalled`; the
 * thread lets it go while it writes. has_reported is the thread's own, what follows `progress` the loop's. */
struct logfile_writer {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* for the thread */
    pthread_cond_t done; /* for logfile_writer_destroy() */
    pthread_t thread;
    bool has_thread;
    bool is_ending; /* the thread ends when nothing is ready */
    bool is_ended;
    bool is_stalled;
    bool has_reported; /* of a file that was given up: one line, not one a file */
    struct ct_list targets;
    struct ct_list ready;
    struct ct_list roomy;
    const char *busy;              /* the path that the thread is at; NULL: none */
    atomic_bool is_full;           /* every write fails */
    atomic_uint_fast64_t progress; /* writes that came back */

    struct loop_watch *wake; /* eventfd: somebody is roomy */
    int wake_fd;
    struct loop_timer *stall; /* runs while somebody wants room */
    bool is_stall_set;
    uint64_t seen_progress; /* when it was set */
};

/* The thread: serves targets until logfile_writer.is_ending and nothing is ready. */
void *logfile_write_ready(void *writer);
/* Those who wanted room in this target will be called. With the mutex held. */
void logfile_call_roomy(struct logfile_writer *writer, struct logfile_target *target);
/* Starts the thread with the first file. 0 or a negative errno. */
int logfile_need_thread(struct logfile_writer *writer);
/* Looks whether anything moves for as long as somebody wants room. */
void logfile_watch_stall(struct logfile_writer *writer);
