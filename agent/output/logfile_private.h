/* SPDX-License-Identifier: Apache-2.0 */
/* What logfile.c (files), logfile_writer.c (the thread, as the loop sees it) and
 * logfile_thread.c (the thread's own code) share.
 *
 * One mutex for all queues. The thread takes a whole queue by swapping buffers and writes with
 * the mutex released, so that the loop never waits for more than a swap. A target with data to
 * write or to be closed is in the list `ready`; the thread serves these targets in turn. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "agent/output/logfile.h"
#include "agent/output/logrotate.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/list.h"

/* A file on disk. */
struct logfile_target {
    struct ct_list node;  /* in the writer's list of targets */
    struct ct_list ready; /* in the writer's ready list while there is work to do */
    /* list of struct logfile; empty: close the file when all is written */
    struct ct_list users;
    char *path;
    int keep;
    bool is_broken;    /* given up: pushed data are dropped */
    bool appends;      /* append to the present file; used by the thread only */
    uint64_t left_out; /* bytes not kept since the file system stopped answering */
    struct ct_buf queue;
    struct ct_buf taken; /* from here on used by the thread only */
    struct logrotate cap;
    int fd;
};

struct logfile {
    struct ct_list node;
    /* in the writer's list of files whose on_room() is to be called */
    struct ct_list roomy;
    struct logfile_writer *writer;
    struct logfile_target *target;
    bool wants_room;
    void (*on_room)(void *context);
    void *context;
};

/* Two threads: the loop fills queues and never waits for a disk, the writer's thread empties
 * them. The mutex protects the lists, the targets' queues, `busy`, `is_ending`, `is_ended` and
 * `is_stalled`; the thread releases it while it writes. Only the thread uses lost_count, only
 * the loop the fields after `progress`. */
struct logfile_writer {
    pthread_mutex_t mutex;
    pthread_cond_t work; /* for the thread */
    pthread_cond_t done; /* for logfile_writer_destroy() */
    pthread_t thread;
    bool has_thread;
    bool is_ending; /* the thread ends when nothing is ready */
    bool is_ended;
    bool is_stalled;
    /* files given up: the first is reported in a line, the others in one line at the end */
    unsigned lost_count;
    struct ct_list targets;
    struct ct_list ready;
    struct ct_list roomy;
    const char *busy;              /* the path that the thread works on; NULL: none */
    atomic_bool is_full;           /* chaos: every write fails */
    atomic_uint_fast64_t progress; /* number of writes that have returned */

    struct loop_watch *wake; /* eventfd: the list roomy is not empty */
    int wake_fd;
    struct loop_timer *stall; /* runs while a file waits for room */
    bool is_stall_set;
    uint64_t seen_progress; /* when it was set */
};

/* The thread: serves targets until logfile_writer.is_ending and nothing is ready. */
void *logfile_write_ready(void *writer);
/* Marks the files that wait for room in this target to be called. With the mutex held. */
void logfile_call_roomy(struct logfile_writer *writer, struct logfile_target *target);
/* Starts the thread with the first file. 0 or a negative errno. */
int logfile_need_thread(struct logfile_writer *writer);
/* Checks for progress as long as a file waits for room. */
void logfile_watch_stall(struct logfile_writer *writer);
