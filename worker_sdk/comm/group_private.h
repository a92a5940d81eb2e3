/* SPDX-License-Identifier: Apache-2.0 */
/* A group and its works, for comm.c (opening and closing), work.c (the calls), queue.c (the works) and device.c. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/comm/calls.h"
#include "worker_sdk/comm/comm.h"

enum {
    CT_GROUP_KEY_MAX = CT_BOOTSTRAP_KEY_MAX - 24 /* discovery appends "/hello/4095" */
};

struct ctrun_group {
    const struct ct_backend_ops *backend;
    void *self; /* the back end's own data */
    int size, me;
    int rank;     /* in the world */
    pid_t owner;  /* the process that has opened it */
    void *stream; /* of the options */
    uint64_t timeout_ms;
    uint64_t number;             /* number of the last collective */
    uint8_t pass;                /* DDP backwards counted so far */
    char key[CT_GROUP_KEY_MAX];  /* prefix of its keys in the store */
    char root[CT_GROUP_KEY_MAX]; /* key of the group before ranks were lost */
    uint32_t epoch;              /* of the world at the opening */
    int shm, min_ctas, max_ctas; /* of the options */
    int *ranks;                  /* owned; world rank of each member */
    bool is_whole;               /* of all ranks that were left at the opening */
    /* this rank is new, or got only part of its state: it must catch up */
    bool lacks_state;
    int split_count;
    uint32_t flight;      /* its id in the record of calls */
    _Atomic bool is_used; /* a thread is inside a call */
    /* Messages for ctrun_batch_end(); owned. */
    bool is_batching;
    struct ct_comm_message *batch;
    size_t batch_count;
    /* Works, owned by their callers: each stays here until it is done. The head is the one that
     * runs. */
    struct ct_list queue;
    /* Threaded groups: lock guards queue, works and is_closing. */
    bool has_thread;
    bool is_closing;
    pthread_t thread; /* also the helper */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* In-line groups whose works did not end at once: who has the turn, the helper or the thread
     * that is inside the group, uses queue, works and back end. Locked before lock. */
    bool has_helper;
    bool lacks_helper; /* warned that none can be started */
    bool has_works;    /* for the helper to continue; guarded by lock */
    pthread_mutex_t turn;
    _Atomic uint64_t left_ms; /* the last call of the program ended */
};

struct ctrun_work {
    struct ct_list node; /* in the queue until it is done */
    struct ctrun_group *group;
    struct ct_call call;
    void *ticket; /* of a device back end, which has no queue; NULL once spent */
    bool is_device;
    bool has_begun;
    _Atomic bool is_done; /* result and err are set; the group may be closed */
    int result;
    struct ctrun_error err;
};

/* A child of fork() has none of the group's threads, and its parent's connections: it would take
 * the parent's messages, or tell the others that this rank has left. */
static inline bool ct_group_is_inherited(const struct ctrun_group *group)
{
    return group->owner != getpid();
}
/* The options with which a group was opened, without ranks; the text is static. */
static inline struct ctrun_group_options
ct_group_options(const struct ctrun_group *group)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;

    options.backend = group->backend->name;
    options.timeout_ms = group->timeout_ms;
    options.shm = group->shm;
    options.stream = group->stream;
    options.min_ctas = group->min_ctas;
    options.max_ctas = group->max_ctas;
    return options;
}

/* Between enter and leave a group belongs to one thread. leave returns rc. */
int ct_group_enter(struct ctrun_group *group, const char *name,
                   struct ctrun_error *err);
int ct_group_leave(struct ctrun_group *group, int rc);
/* Ends the calls of all members with CTRUN_E_ABORTED; `deed` is what this rank did. Any thread. */
static inline void ct_group_abort(struct ctrun_group *group, const char *deed)
{
    char text[80];

    (void)ct_format(text, sizeof text, "rank %d %s", group->rank, deed);
    group->backend->abort(group->self, CTRUN_E_ABORTED, text);
}
/* Waits until all works are done, so that a blocking call comes after them. */
void ct_group_drain(struct ctrun_group *group);
/* Ends the remaining works with CTRUN_E_ABORTED, and joins the thread. */
void ct_group_stop(struct ctrun_group *group);

/* Inside a host group. ct_queue_add() starts the work or puts it behind the others. */
int ct_queue_add(struct ctrun_group *group, struct ctrun_work *work,
                 struct ctrun_error *err);
/* Continues the works without waiting, where no thread does. */
void ct_queue_try(struct ctrun_group *group);
/* Waits until the work is done. */
void ct_queue_finish(struct ctrun_group *group, struct ctrun_work *work);
bool ct_queue_is_empty(struct ctrun_group *group);

/* Starts a background call on a stream of a device; takes ownership of the messages. */
int ct_group_start(struct ctrun_group *group, const struct ct_call *call, void *stream,
                   struct ctrun_work **out, struct ctrun_error *err);
/* Runs a call; on a device it is enqueued behind `stream`. The caller keeps the messages. */
int ct_group_run(struct ctrun_group *group, struct ct_call *call, void *stream,
                 struct ctrun_error *err);
/* The result of a work that is done; frees it. */
int ct_work_take_result(struct ctrun_work *work, struct ctrun_error *err);
/* Gives up a work that nobody will wait for. `stream`, if not NULL, waits for it. */
int ct_work_release(struct ctrun_work *work, void *const *stream,
                    struct ctrun_error *err);
