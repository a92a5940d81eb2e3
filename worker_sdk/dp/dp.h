/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of DataParallel share:
 *
 *     data_parallel.c  threads and their jobs; replicas in memory of the host
 *     device.c         replicas on GPUs: each device's thread is a member of a group
 *     gather.c         joins the outputs of replicas into one tensor */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/comm/comm.h"
#include "worker_sdk/include/ctrun.h"

/* In a job the device's thread writes result and err; the caller reads them under the lock when
 * `left` is 0. */
struct ct_dp_device {
    struct ctrun_dp *dp;
    pthread_t thread;
    unsigned char *block; /* of a replica on the host: its values and gradients */
    void **values, **grads;
    int result;
    struct ctrun_error err;
    /* On a GPU: the thread's own group, and memory allocated from it. */
    struct ctrun_group *group;
    struct ct_device_facts facts;
    unsigned char *sent;   /* all values; on device 0 a copy that is broadcast */
    unsigned char *summed; /* all gradients, except the caller's own */
};

typedef int ct_dp_job_fn(struct ctrun_dp *dp, int device, struct ctrun_error *err);

/* The arguments of a job. */
struct ct_dp_call {
    ctrun_dp_fn *fn; /* of apply() */
    void *context;
    const struct ctrun_tensor *pieces; /* of collect(), one for each device */
    size_t piece_count;
    unsigned char *room;
};

struct ct_dp_meeting; /* device.c */

struct ctrun_dp {
    struct ctrun_param *params; /* owned */
    size_t count;
    int devices;
    int first_thread; /* 1: device 0 is the caller; 0: it has a thread, too */
    int threads;      /* threads that were started, from first_thread on */
    struct ct_dp_device *of;
    /* On GPUs; otherwise is_on_gpus is false. */
    bool is_on_gpus;
    struct ctrun_dp_options options;
    int *ids;       /* owned; NULL: 0, 1, ... */
    void **streams; /* owned; NULL: the default streams */
    struct ct_dp_meeting *meeting;
    _Atomic int failed; /* 1 + the first device whose part of a collective job failed */
    _Atomic bool is_busy;
    pthread_mutex_t lock; /* guards all that follows */
    pthread_cond_t changed;
    ct_dp_job_fn *job;
    struct ct_dp_call call;
    int replicas, left;
    uint64_t round;
    bool is_over;
};

/* The jobs on GPUs. Collective: all devices take part. A job blocks for timeout_ms of the options
 * at most; once it has failed on a device, it fails on the others, too, and so do all later
 * jobs. */
ct_dp_job_fn ct_dp_open_device, ct_dp_close_device, ct_dp_replicate_on_device,
    ct_dp_reduce_on_device, ct_dp_collect_on_device;

/* On GPUs that are open: warns of one that is much smaller than another. */
void ct_dp_warn_of_imbalance(const struct ctrun_dp *dp);

/* Where the devices that open a group meet; one for each dp. NULL: out of memory. */
struct ct_dp_meeting *ct_dp_meeting_create(void);
/* Ends the waits of devices that have not met yet. Any thread. */
void ct_dp_meeting_end(struct ct_dp_meeting *meeting);
/* Accepts NULL. */
void ct_dp_meeting_destroy(struct ct_dp_meeting *meeting);

/* gather.c: checks copies of the pieces, describes the joined tensor, which will lie in `room`, in
 * *out, and counts its bytes. */
int ct_dp_describe_whole(const struct ctrun_tensor *pieces, size_t count, void *room,
                         size_t room_bytes, struct ctrun_tensor *out,
                         struct ctrun_error *err);
/* Bytes of a piece that was checked. */
size_t ct_dp_piece_bytes(const struct ctrun_tensor *piece);
