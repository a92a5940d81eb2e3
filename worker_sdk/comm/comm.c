/* SPDX-License-Identifier: Apache-2.0 */
/* The group: checks what it is asked, numbers the calls, and hands them to the back end in
 * order.
 *
 * Background calls wait in a queue. With an in-line back end (shared memory) the caller's own
 * thread moves the head of the queue on, whenever it starts or waits for something: while all
 * cores compute, another thread would only steal from them, and what there is to hide, the time
 * until the slowest rank has posted, passes by itself. Where the network is involved a thread
 * runs the queue and sleeps in poll() most of the time. */
#include "worker_sdk/comm/comm.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/list.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/backend.h"
#include "worker_sdk/comm/reduce.h"

struct ctrun_group {
    const struct ct_backend_ops *backend;
    void *self; /* of the back end */
    int size, me;
    int rank; /* in the world */
    uint64_t timeout_ms;
    uint64_t number;      /* of the last collective */
    struct ct_list queue; /* of works; the head runs */
    /* Threaded groups only; lock guards queue, works and is_closing. */
    bool has_thread;
    bool is_closing;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

struct ctrun_work {
    struct ct_list node; /* in the queue until it is done */
    struct ctrun_group *group;
    struct ct_call call;
    bool has_begun;
    _Atomic bool is_done; /* result and err are there; the group may be gone */
    int result;
    struct ctrun_error err;
};

/* "all_reduce"; for messages. */
static const char *call_name(enum ct_call_kind kind)
{
    switch (kind) {
    case CT_CALL_ALL_REDUCE: return "all_reduce";
    case CT_CALL_BROADCAST: return "broadcast";
    case CT_CALL_ALL_GATHER: return "all_gather";
    case CT_CALL_BARRIER: return "barrier";
    case CT_CALL_SEND: return "send";
    case CT_CALL_RECV: return "recv";
    }
    return "unknown call"; /* it came from another process */
}

void ct_call_format(char *dst, const struct ct_call *call)
{
    static const char *const dtypes[] = {"u8",   "i32", "i64", "f16",
                                         "bf16", "f32", "f64"};
    static const char *const ops[] = {"SUM", "AVG", "MIN", "MAX", "PROD"};
    const char *dtype = (unsigned)call->dtype < 7 ? dtypes[call->dtype] : "?";
    const char *op = (unsigned)call->op < 5 ? ops[call->op] : "?";

    if (call->kind == CT_CALL_ALL_REDUCE)
        (void)ct_format(dst, CT_CALL_TEXT_MAX, "all_reduce of %zu %s, %s", call->count,
                        dtype, op);
    else if (call->kind == CT_CALL_BROADCAST)
        (void)ct_format(dst, CT_CALL_TEXT_MAX, "broadcast of %zu %s from member %d",
                        call->count, dtype, call->peer);
    else if (call->kind == CT_CALL_BARRIER)
        (void)ct_format(dst, CT_CALL_TEXT_MAX, "barrier");
    else
        (void)ct_format(dst, CT_CALL_TEXT_MAX, "%s of %zu %s", call_name(call->kind),
                        call->count, dtype);
}

/* ---- Opening and closing ---------------------------------------------------------------- */

/* Fills setup with the members; `ranks` has room for world_size. */
static int find_members(struct ct_backend_setup *setup, int *ranks,
                        struct ctrun_error *err)
{
    const struct ct_group_place *place = setup->place;
    const struct ctrun_group_options *options = setup->options;

    setup->ranks = ranks;
    setup->me = -1;
    setup->size = options->ranks ? (int)options->rank_count : place->world_size;
    for (int i = 0; i < setup->size; i++) {
        ranks[i] = options->ranks ? options->ranks[i] : i;
        if (ranks[i] < 0 || ranks[i] >= place->world_size ||
            (i && ranks[i] <= ranks[i - 1]))
            return ct_fail(
                err, -EINVAL,
                "open group: member %d is rank %d: ranks must ascend, from 0 to %d", i,
                ranks[i], place->world_size - 1);
        if (ranks[i] == place->rank)
            setup->me = i;
    }
    return 0;
}

static int check_place(const struct ct_group_place *place,
                       const struct ctrun_group_options *options,
                       struct ctrun_error *err)
{
    if (options->size < sizeof *options)
        return ct_fail(err, -EINVAL, "open group: begin with CTRUN_GROUP_OPTIONS_INIT");
    if (place->world_size < 1 || place->world_size > CT_GROUP_MEMBERS_MAX ||
        place->rank < 0 || place->rank >= place->world_size)
        return ct_fail(err, -EINVAL, "open group: rank %d of %d ranks (at most %d)",
                       place->rank, place->world_size, CT_GROUP_MEMBERS_MAX);
    if (options->ranks &&
        (options->rank_count < 1 || options->rank_count > (size_t)place->world_size))
        return ct_fail(err, -EINVAL, "open group: %zu members in a world of %d",
                       options->rank_count, place->world_size);
    return 0;
}

static int find_backend(const struct ct_backend_ops **out, const char *name,
                        struct ctrun_error *err)
{
    if (!name || strcmp(name, "host") == 0) {
        *out = &ct_host_backend;
        return 0;
    }
    if (strcmp(name, "nccl") == 0)
        return ct_plugin_load(out, name, err);
    return ct_fail(err, -EINVAL, "open group: back end '%s': there is host and nccl",
                   name);
}

int ct_group_open(struct ctrun_group **out, const struct ct_group_place *place,
                  const struct ctrun_group_options *options, struct ctrun_error *err)
{
    static const struct ctrun_group_options defaults = CTRUN_GROUP_OPTIONS_INIT;
    struct ct_backend_setup setup = {.place = place,
                                     .options = options ? options : &defaults};
    char key[CT_BOOTSTRAP_KEY_MAX - 24]; /* the meeting adds "/hello/4095" */
    struct ctrun_group *group = NULL;
    int *ranks = NULL;
    int rc = check_place(place, setup.options, err);

    *out = NULL;
    if (rc < 0)
        return rc;
    if (!(ranks = ct_zalloc_array((size_t)place->world_size, sizeof *ranks)) ||
        !(group = ct_zalloc(sizeof *group))) {
        rc = ct_fail(err, -ENOMEM, "open group: no memory");
        goto free_all;
    }
    if ((rc = find_members(&setup, ranks, err)) < 0 || setup.me < 0)
        goto free_all; /* wrong, or not one of them */
    (void)ct_format(key, sizeof key, "ctrun/group/%llu.%llu.%llu",
                    (unsigned long long)place->generation,
                    (unsigned long long)place->restart_count,
                    (unsigned long long)place->sequence);
    setup.key = key;
    setup.deadline_ms = ct_deadline_ms(setup.options->timeout_ms);
    group->size = setup.size;
    group->me = setup.me;
    group->rank = place->rank;
    group->timeout_ms = setup.options->timeout_ms;
    ct_list_init(&group->queue);
    if ((rc = find_backend(&group->backend, setup.options->backend, err)) < 0 ||
        (rc = group->backend->open(&group->self, &setup, err)) < 0)
        goto free_all;
    pthread_mutex_init(&group->lock, NULL);
    pthread_cond_init(&group->changed, NULL);
    free(ranks);
    *out = group;
    return 0;
free_all:
    free(ranks);
    free(group);
    return rc;
}

static void finish_work(struct ctrun_work *work, int rc)
{
    ct_list_remove(&work->node);
    work->result = rc < 0 ? rc : 0;
    work->is_done = true;
}

void ctrun_group_close(struct ctrun_group *group)
{
    if (!group)
        return;
    if (group->has_thread) {
        pthread_mutex_lock(&group->lock);
        group->is_closing = true;
        if (!ct_list_is_empty(&group->queue)) /* the thread may be waiting for a peer */
            group->backend->abort(group->self, CTRUN_E_ABORTED,
                                  "the group was closed before its works were done");
        pthread_cond_broadcast(&group->changed);
        pthread_mutex_unlock(&group->lock);
        pthread_join(group->thread, NULL);
    }
    while (!ct_list_is_empty(&group->queue)) {
        struct ctrun_work *work = ct_list_entry(group->queue.next, struct ctrun_work,
                                                node);
        finish_work(work, ct_fail(&work->err, CTRUN_E_ABORTED,
                                  "the group was closed before this work was done"));
    }
    group->backend->close(group->self);
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
    free(group);
}

int ctrun_group_rank(const struct ctrun_group *group)
{
    return group->me;
}

int ctrun_group_size(const struct ctrun_group *group)
{
    return group->size;
}

void ctrun_group_abort(struct ctrun_group *group)
{
    char text[64];

    (void)ct_format(text, sizeof text, "rank %d aborted the group", group->rank);
    group->backend->abort(group->self, CTRUN_E_ABORTED, text);
}

/* ---- The queue -------------------------------------------------------------------------- */

/* In-line: moves the head on. With `wait` it is done afterwards. */
static void advance_head(struct ctrun_group *group, bool wait)
{
    struct ctrun_work *work = ct_list_entry(group->queue.next, struct ctrun_work, node);
    int rc = 0;

    if (!work->has_begun)
        rc = group->backend->begin(group->self, &work->call, &work->err);
    work->has_begun = true;
    if (rc == 0)
        rc = group->backend->advance(group->self, wait, &work->err);
    if (rc != 0)
        finish_work(work, rc);
}

/* In-line: goes as far as it can without waiting. */
static void advance_queue(struct ctrun_group *group)
{
    const struct ct_list *head;

    do {
        if (ct_list_is_empty(&group->queue))
            return;
        head = group->queue.next;
        advance_head(group, false);
    } while (group->queue.next != head);
}

static void *run_queue(void *context)
{
    struct ctrun_group *group = context;

    pthread_mutex_lock(&group->lock);
    for (;;) {
        struct ctrun_work *work;
        int rc;
        while (ct_list_is_empty(&group->queue) && !group->is_closing)
            pthread_cond_wait(&group->changed, &group->lock);
        if (group->is_closing)
            break;
        work = ct_list_entry(group->queue.next, struct ctrun_work, node);
        pthread_mutex_unlock(&group->lock);
        rc = group->backend->run(group->self, &work->call, &work->err);
        pthread_mutex_lock(&group->lock);
        finish_work(work, rc);
        pthread_cond_broadcast(&group->changed);
    }
    pthread_mutex_unlock(&group->lock);
    return NULL;
}

/* The thread takes no signals: they are the program's. */
static int start_thread(struct ctrun_group *group)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&group->thread, NULL, run_queue, group);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    group->has_thread = rc == 0;
    return -rc;
}

/* Waits until all works are done, so that a blocking call comes after them. */
static void drain(struct ctrun_group *group)
{
    if (!group->has_thread) {
        while (!ct_list_is_empty(&group->queue))
            advance_head(group, true);
        return;
    }
    pthread_mutex_lock(&group->lock);
    while (!ct_list_is_empty(&group->queue))
        pthread_cond_wait(&group->changed, &group->lock);
    pthread_mutex_unlock(&group->lock);
}

/* ---- Calls ------------------------------------------------------------------------------ */

static int prepare(struct ctrun_group *group, struct ct_call *call,
                   struct ctrun_error *err)
{
    size_t element = ctrun_dtype_size(call->dtype);
    bool has_peer = call->kind == CT_CALL_BROADCAST || call->kind == CT_CALL_SEND ||
                    call->kind == CT_CALL_RECV;
    const char *name = call_name(call->kind);

    if (element == 0)
        return ct_fail(err, -EINVAL, "%s: dtype %d: there is no such type", name,
                       (int)call->dtype);
    if (call->count > SIZE_MAX / 2 / element / (size_t)group->size)
        return ct_fail(err, -EINVAL, "%s: %zu elements: too many", name, call->count);
    if (call->count && (!call->in || !call->out))
        return ct_fail(err, -EINVAL, "%s: no data", name);
    if (has_peer && (call->peer < 0 || call->peer >= group->size))
        return ct_fail(err, -EINVAL, "%s: member %d of a group of %d", name, call->peer,
                       group->size);
    if (call->kind != CT_CALL_BROADCAST && has_peer && call->peer == group->me)
        return ct_fail(err, -EINVAL, "%s: to or from oneself", name);
    if (call->kind == CT_CALL_ALL_REDUCE &&
        !ct_reduce_is_supported(call->dtype, call->op))
        return ct_fail(
            err, CTRUN_E_UNSUPPORTED,
            "all_reduce: op %d of dtype %d; integers have no AVG: use SUM, divide",
            (int)call->op, (int)call->dtype);
    call->bytes = call->count * element;
    call->divisor = call->op == CTRUN_AVG ? group->size : 1;
    call->deadline_ms = ct_deadline_ms(group->timeout_ms);
    if (call->kind != CT_CALL_SEND && call->kind != CT_CALL_RECV)
        call->number = ++group->number;
    return 0;
}

static int run(struct ctrun_group *group, struct ct_call *call, struct ctrun_error *err)
{
    int rc = prepare(group, call, err);

    if (rc < 0)
        return rc;
    drain(group);
    return group->backend->run(group->self, call, err);
}

int ctrun_all_reduce(struct ctrun_group *group, void *data, size_t count,
                     enum ctrun_dtype dtype, enum ctrun_op op, struct ctrun_error *err)
{
    struct ct_call call = {.kind = CT_CALL_ALL_REDUCE,
                           .in = data,
                           .out = data,
                           .count = count,
                           .dtype = dtype,
                           .op = op};

    return run(group, &call, err);
}

int ctrun_broadcast(struct ctrun_group *group, void *data, size_t count,
                    enum ctrun_dtype dtype, int root, struct ctrun_error *err)
{
    struct ct_call call = {.kind = CT_CALL_BROADCAST,
                           .in = data,
                           .out = data,
                           .count = count,
                           .dtype = dtype,
                           .peer = root};

    return run(group, &call, err);
}

int ctrun_all_gather(struct ctrun_group *group, const void *in, void *out, size_t count,
                     enum ctrun_dtype dtype, struct ctrun_error *err)
{
    struct ct_call call = {.kind = CT_CALL_ALL_GATHER,
                           .in = in,
                           .out = out,
                           .count = count,
                           .dtype = dtype};

    return run(group, &call, err);
}

int ctrun_barrier(struct ctrun_group *group, struct ctrun_error *err)
{
    struct ct_call call = {.kind = CT_CALL_BARRIER};

    return run(group, &call, err);
}

int ctrun_send(struct ctrun_group *group, const void *data, size_t bytes, int to,
               struct ctrun_error *err)
{
    struct ct_call call = {
        .kind = CT_CALL_SEND, .in = data, .count = bytes, .peer = to};

    memcpy(&call.out, &data,
           sizeof data); /* only read: no back end writes where it sends */
    return run(group, &call, err);
}

int ctrun_recv(struct ctrun_group *group, void *data, size_t bytes, int from,
               struct ctrun_error *err)
{
    struct ct_call call = {
        .kind = CT_CALL_RECV, .in = data, .out = data, .count = bytes, .peer = from};

    return run(group, &call, err);
}

int ctrun_group_alloc(struct ctrun_group *group, size_t bytes, void **out,
                      struct ctrun_error *err)
{
    *out = NULL;
    if (bytes == 0)
        return ct_fail(err, -EINVAL, "group alloc: 0 bytes");
    drain(group);
    return group->backend->alloc(group->self, bytes, ct_deadline_ms(group->timeout_ms),
                                 out, err);
}

int ctrun_all_reduce_start(struct ctrun_group *group, void *data, size_t count,
                           enum ctrun_dtype dtype, enum ctrun_op op,
                           struct ctrun_work **out, struct ctrun_error *err)
{
    struct ctrun_work *work = ct_zalloc(sizeof *work);
    bool is_inline = group->backend->is_inline(group->self);
    int rc;

    *out = NULL;
    if (!work)
        return ct_fail(err, -ENOMEM, "all_reduce: no memory");
    work->group = group;
    work->call = (struct ct_call){.kind = CT_CALL_ALL_REDUCE,
                                  .in = data,
                                  .out = data,
                                  .count = count,
                                  .dtype = dtype,
                                  .op = op};
    rc = prepare(group, &work->call, err);
    if (rc == 0 && !is_inline && !group->has_thread && (rc = start_thread(group)) < 0)
        rc = ct_fail(err, rc, "all_reduce: start a thread: %s", strerror(-rc));
    if (rc < 0) {
        free(work);
        return rc;
    }
    pthread_mutex_lock(&group->lock);
    ct_list_add(&group->queue, &work->node);
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
    if (is_inline)
        advance_queue(group);
    *out = work;
    return 0;
}

int ctrun_work_wait(struct ctrun_work *work, struct ctrun_error *err)
{
    struct ctrun_group *group = work->group;
    int rc;

    if (!work->is_done && group->has_thread) {
        pthread_mutex_lock(&group->lock);
        while (!work->is_done)
            pthread_cond_wait(&group->changed, &group->lock);
        pthread_mutex_unlock(&group->lock);
    } else if (!work->is_done) {
        while (!work->is_done)
            advance_head(group, true);
        advance_queue(group);
    }
    rc = work->result;
    if (rc < 0 && err)
        *err = work->err;
    free(work);
    return rc;
}
