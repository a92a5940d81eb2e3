/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas of a model in one process: torch.nn.DataParallel on the processors of one machine, or on
 * its GPUs (device.c). The caller is device 0, the others are threads that wait for a job:
 *
 *     caller:   job, replicas, round + 1 ──> its own part ──> waits until `left` is 0
 *     thread i: sees the new round ──> its part, if i < replicas ──> left - 1
 *
 * On GPUs device 0 has a thread, too, because the current GPU is a property of a thread; the caller
 * only waits.
 *
 * The lock is not held while a job runs. A job writes only memory of its device, or, in a sum, the
 * device's share of the elements, so that no two jobs write the same memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/thread.h"
#include "worker_sdk/comm/host/reduce.h"
#include "worker_sdk/ddp/params.h"
#include "worker_sdk/dp/dp.h"

enum {
    DEVICES_MAX = 1024,
    LINE = 64, /* bytes of a cache line; no two devices write one */
};

/* ---- Threads ---------------------------------------------------------------------------- */

static int call_fn(struct ctrun_dp *dp, int device, struct ctrun_error *err);

/* Whether each device waits for the others' parts. */
static bool is_collective(const struct ctrun_dp *dp)
{
    return dp->is_on_gpus && dp->job != call_fn && dp->job != ct_dp_close_device;
}

static void run_part(struct ctrun_dp *dp, int device)
{
    struct ct_dp_device *own = &dp->of[device];

    own->err = (struct ctrun_error){.text = ""};
    own->result = dp->job(dp, device, &own->err);
    if (own->result < 0 && is_collective(dp)) {
        int none = 0; /* the first failure is the cause of the others */

        (void)atomic_compare_exchange_strong(&dp->failed, &none, 1 + device);
        ct_dp_meeting_end(dp->meeting);
    }
}

/* A thread that wakes up late misses no round that needs it: the next round begins only when `left`
 * is 0. It may miss a round that does not need it. */
static void *wait_for_jobs(void *context)
{
    struct ct_dp_device *own = context;
    struct ctrun_dp *dp = own->dp;
    const int device = (int)(own - dp->of);
    uint64_t seen = 0;

    pthread_mutex_lock(&dp->lock);
    for (;;) {
        while (dp->round == seen && !dp->is_over)
            pthread_cond_wait(&dp->changed, &dp->lock);
        if (dp->is_over)
            break;
        seen = dp->round;
        if (device >= dp->replicas)
            continue;
        pthread_mutex_unlock(&dp->lock);
        run_part(dp, device);
        pthread_mutex_lock(&dp->lock);
        if (--dp->left == 0)
            pthread_cond_broadcast(&dp->changed);
    }
    pthread_mutex_unlock(&dp->lock);
    return NULL;
}

static int start_threads(struct ctrun_dp *dp, struct ctrun_error *err)
{
    int rc = 0;

    for (int i = dp->first_thread; rc == 0 && i < dp->devices; i++) {
        rc = ct_thread_start(&dp->of[i].thread, wait_for_jobs, &dp->of[i]);
        dp->threads += rc == 0;
    }
    return rc ? ct_fail(err, rc, "data parallel: start a thread: %s", strerror(-rc))
              : 0;
}

/* Returns the error of the lowest device that failed; in a collective job, of the device that
 * failed first. */
static int take_result(const struct ctrun_dp *dp, int replicas, struct ctrun_error *err)
{
    int rc = 0;

    for (int i = 0; i < replicas; i++) {
        const struct ct_dp_device *own = &dp->of[i];

        if (own->result >= 0 || (rc < 0 && !(is_collective(dp) && i + 1 == dp->failed)))
            continue;
        rc = own->result;
        if (err)
            *err = own->err;
    }
    return rc;
}

/* Runs `job` on the first `replicas` devices at the same time; a collective job on all of them. Does
 * not wait until is_busy is false: a call from inside a replica would wait for itself. */
static int run_job(struct ctrun_dp *dp, const char *name, ct_dp_job_fn *job,
                   int replicas, struct ct_dp_call call, struct ctrun_error *err)
{
    int rc = 0;

    if (!dp)
        return ct_fail_null(err, "DataParallel object");
    if (replicas < 0 || replicas > dp->devices)
        return ct_fail(err, -EINVAL,
                       "data parallel: %s: %d replicas on %d devices: give 0 to %d",
                       name, replicas, dp->devices, dp->devices);
    if (atomic_exchange(&dp->is_busy, true))
        return ct_fail(err, CTRUN_E_USAGE,
                       "data parallel: %s: another call on this object has not "
                       "returned; only one can run at a time, and a replica cannot "
                       "make one",
                       name);
    pthread_mutex_lock(&dp->lock);
    dp->job = job;
    dp->call = call;
    if (is_collective(dp))
        replicas = dp->devices;
    dp->replicas = replicas;
    dp->left = replicas > dp->first_thread ? replicas - dp->first_thread : 0;
    dp->round++;
    pthread_cond_broadcast(&dp->changed);
    pthread_mutex_unlock(&dp->lock);
    if (replicas > 0 && dp->first_thread == 1)
        run_part(dp, 0);
    pthread_mutex_lock(&dp->lock);
    while (dp->left > 0)
        pthread_cond_wait(&dp->changed, &dp->lock);
    pthread_mutex_unlock(&dp->lock);
    rc = take_result(dp, replicas, err);
    dp->is_busy = false;
    return rc;
}

/* ---- Memory ----------------------------------------------------------------------------- */

/* Places a device's values and gradients in a block, each at the start of a cache line; block NULL:
 * only counts. Returns the bytes. */
static size_t place(struct ctrun_dp *dp, int device, unsigned char *block)
{
    size_t used = 0;

    for (size_t p = 0; p < dp->count; p++) {
        const struct ctrun_param *param = &dp->params[p];
        const size_t bytes = (ct_ddp_param_bytes(param) + LINE - 1) / LINE * LINE;
        void **at[] = {device ? &dp->of[device].values[p] : NULL,
                       param->no_grad || (!device && param->grad)
                           ? NULL
                           : &dp->of[device].grads[p]};

        for (int i = 0; i < 2; i++) {
            if (at[i] && block)
                *at[i] = block + used;
            used += at[i] ? bytes : 0;
        }
        if (!device && block) {
            dp->of[0].values[p] = param->data;
            if (param->grad && !param->no_grad)
                dp->of[0].grads[p] = param->grad;
        }
    }
    return used;
}

static int make_device(struct ctrun_dp *dp, int device, struct ctrun_error *err)
{
    struct ct_dp_device *own = &dp->of[device];

    own->dp = dp;
    own->values = ct_zalloc_array(dp->count, sizeof *own->values);
    own->grads = ct_zalloc_array(dp->count, sizeof *own->grads);
    if (own->values && own->grads && !dp->is_on_gpus)
        own->block = ct_zalloc(place(dp, device, NULL) + LINE);
    if (!own->values || !own->grads || !(own->block || dp->is_on_gpus))
        return ct_fail(err, -ENOMEM,
                       "data parallel: out of memory for the replica on device %d",
                       device);
    if (own->block)
        (void)place(dp, device, own->block + LINE - (uintptr_t)own->block % LINE);
    return 0;
}

static int check_params(const struct ctrun_dp *dp, struct ctrun_error *err)
{
    size_t bytes = 0;
    int rc;

    for (size_t p = 0; p < dp->count; p++) {
        if ((rc = ct_ddp_param_check(&dp->params[p], p, err)) < 0)
            return ct_wrap(err, "data parallel"), rc;
        if (__builtin_add_overflow(
                bytes, 2 * ct_ddp_param_bytes(&dp->params[p]) + 2 * LINE, &bytes) ||
            bytes > SIZE_MAX / 4)
            return ct_fail(err, -EINVAL, "data parallel: the parameters are too large");
    }
    return 0;
}

/* Stops the threads that were started; each closes its own group. */
static void stop_threads(struct ctrun_dp *dp)
{
    const struct ct_dp_call nothing = {.fn = NULL};

    if (dp->is_on_gpus && dp->threads == dp->devices)
        (void)run_job(dp, "close", ct_dp_close_device, dp->devices, nothing, NULL);
    pthread_mutex_lock(&dp->lock);
    dp->is_over = true;
    pthread_cond_broadcast(&dp->changed);
    pthread_mutex_unlock(&dp->lock);
    for (int i = 0; i < dp->threads; i++)
        (void)pthread_join(dp->of[dp->first_thread + i].thread, NULL);
}

void ctrun_dp_destroy(struct ctrun_dp *dp)
{
    if (!dp)
        return;
    stop_threads(dp);
    for (int i = 0; dp->of && i < dp->devices; i++) {
        free(dp->of[i].values);
        free(dp->of[i].grads);
        free(dp->of[i].block);
    }
    pthread_cond_destroy(&dp->changed);
    pthread_mutex_destroy(&dp->lock);
    ct_dp_meeting_destroy(dp->meeting);
    free(dp->ids);
    free(dp->streams);
    free(dp->of);
    free(dp->params);
    free(dp);
}

/* Fills in a zeroed dp that has its params. Does not start threads. */
static int fill(struct ctrun_dp *dp, struct ctrun_error *err)
{
    const size_t devices = (size_t)dp->devices;
    int rc;

    if (!(dp->of = ct_zalloc_array(devices, sizeof *dp->of)) ||
        (dp->is_on_gpus && !(dp->meeting = ct_dp_meeting_create())) ||
        (dp->is_on_gpus && dp->options.ids &&
         !(dp->ids = ct_zalloc_array(devices, sizeof *dp->ids))) ||
        (dp->is_on_gpus && dp->options.streams &&
         !(dp->streams = ct_zalloc_array(devices, sizeof *dp->streams))))
        return ct_fail(err, -ENOMEM, "data parallel: out of memory");
    if (dp->ids)
        memcpy(dp->ids, dp->options.ids, devices * sizeof *dp->ids);
    if (dp->streams)
        memcpy(dp->streams, dp->options.streams, devices * sizeof *dp->streams);
    rc = check_params(dp, err);
    for (int i = 0; rc == 0 && i < dp->devices; i++)
        rc = make_device(dp, i, err);
    return rc;
}

/* Sets the defaults and then the given options. */
static int read_options(struct ctrun_dp_options *out,
                        const struct ctrun_dp_options *given, struct ctrun_error *err)
{
    int rc = given
                 ? ct_sized_read(out, sizeof *out, given, "CTRUN_DP_OPTIONS_INIT", err)
                 : 0;

    if (rc < 0)
        return ct_wrap(err, "data parallel: options"), rc;
    if (out->backend && strcmp(out->backend, "host") != 0 &&
        strcmp(out->backend, "nccl") != 0)
        return ct_fail(err, -EINVAL,
                       "data parallel: there is no back end '%s': use host or nccl",
                       out->backend);
    return 0;
}

int ctrun_dp_create_on(struct ctrun_dp **out, const struct ctrun_param *params,
                       size_t count, int devices, const struct ctrun_dp_options *given,
                       struct ctrun_error *err)
{
    const struct ctrun_param defaults = CTRUN_PARAM_INIT;
    struct ctrun_dp_options options = CTRUN_DP_OPTIONS_INIT;
    struct ctrun_dp *dp;
    void *list;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if (devices < 1 || devices > DEVICES_MAX)
        return ct_fail(err, -EINVAL,
                       "data parallel: devices is %d, but must be 1 to %d", devices,
                       DEVICES_MAX);
    if ((rc = read_options(&options, given, err)) < 0)
        return rc;
    if ((rc = ct_sized_read_array(&list, &defaults, sizeof defaults, params, count,
                                  "CTRUN_PARAM_INIT", err)) < 0)
        return ct_wrap(err, "data parallel: params"), rc;
    if (!(dp = ct_zalloc(sizeof *dp))) {
        free(list);
        return ct_fail(err, -ENOMEM, "data parallel: out of memory");
    }
    pthread_mutex_init(&dp->lock, NULL);
    pthread_cond_init(&dp->changed, NULL);
    dp->params = list;
    dp->count = count;
    dp->devices = devices;
    dp->options = options;
    dp->is_on_gpus = options.backend && strcmp(options.backend, "nccl") == 0;
    dp->first_thread = dp->is_on_gpus ? 0 : 1;
    if ((rc = fill(dp, err)) == 0)
        rc = start_threads(dp, err);
    if (rc == 0 && dp->is_on_gpus)
        rc = run_job(dp, "open", ct_dp_open_device, devices,
                     (struct ct_dp_call){.fn = NULL}, err);
    if (rc < 0) {
        ctrun_dp_destroy(dp);
        return rc;
    }
    if (dp->is_on_gpus)
        ct_dp_warn_of_imbalance(dp);
    *out = dp;
    return 0;
}

int ctrun_dp_create(struct ctrun_dp **out, const struct ctrun_param *params,
                    size_t count, int devices, struct ctrun_error *err)
{
    return ctrun_dp_create_on(out, params, count, devices, NULL, err);
}

void *ctrun_dp_value(const struct ctrun_dp *dp, int device, size_t p)
{
    return dp && device >= 0 && device < dp->devices && p < dp->count
               ? dp->of[device].values[p]
               : NULL;
}

void *ctrun_dp_grad(const struct ctrun_dp *dp, int device, size_t p)
{
    return dp && device >= 0 && device < dp->devices && p < dp->count
               ? dp->of[device].grads[p]
               : NULL;
}

/* ---- A step ----------------------------------------------------------------------------- */

int ctrun_dp_scatter(const struct ctrun_dp *dp, size_t samples, int device,
                     size_t *first, size_t *count)
{
    const size_t devices = dp ? (size_t)dp->devices : 1;
    const size_t each = samples / devices + (samples % devices > 0);
    const size_t replicas = each ? samples / each + (samples % each > 0) : 0;
    const bool has_one = device >= 0 && (size_t)device < replicas;

    if (first)
        *first = has_one ? (size_t)device * each : samples;
    if (count)
        *count = !has_one                         ? 0
                 : (size_t)device + 1 == replicas ? samples - (size_t)device * each
                                                  : each;
    return dp ? (int)replicas : -EINVAL;
}

/* Copies device 0's values, which no device writes meanwhile: device 0 has no part in this. */
static int take_values(struct ctrun_dp *dp, int device, struct ctrun_error *err)
{
    (void)err;
    for (size_t p = 0; device > 0 && p < dp->count; p++) {
        const size_t bytes = ct_ddp_param_bytes(&dp->params[p]);

        if (bytes > 0)
            memcpy(dp->of[device].values[p], dp->params[p].data, bytes);
    }
    return 0;
}

int ctrun_dp_replicate(struct ctrun_dp *dp, int replicas, struct ctrun_error *err)
{
    return run_job(dp, "replicate",
                   dp && dp->is_on_gpus ? ct_dp_replicate_on_device : take_values,
                   replicas, (struct ct_dp_call){.fn = NULL}, err);
}

/* Runs on the thread of `device`; err belongs to that device. */
static int call_fn(struct ctrun_dp *dp, int device, struct ctrun_error *err)
{
    const int rc = dp->call.fn(dp->call.context, device, err);

    if (rc >= 0)
        return 0;
    (void)ct_fail_called(err, rc, "it");
    ct_wrap(err, "in replica %d on device %d", device, device);
    return rc;
}

int ctrun_dp_apply(struct ctrun_dp *dp, int replicas, ctrun_dp_fn *fn, void *context,
                   struct ctrun_error *err)
{
    if (!fn)
        return ct_fail(err, -EINVAL, "data parallel: apply: fn is NULL");
    return run_job(dp, "apply", call_fn, replicas,
                   (struct ct_dp_call){.fn = fn, .context = context}, err);
}

/* g[e] of device 0 = g0[e] + g1[e] + ... + g(R-1)[e], for this device's share of the elements e of
 * each gradient; the gradients of the replicas become zero. Added in the order of the replicas, so
 * that the bits do not depend on the threads. */
static int add_part(struct ctrun_dp *dp, int device, struct ctrun_error *err)
{
    const void *from[DEVICES_MAX];

    (void)err;
    for (size_t p = 0; p < dp->count; p++) {
        const struct ctrun_param *param = &dp->params[p];
        const struct ct_reduction how = {param->dtype, CTRUN_SUM, 1};
        const size_t each = ctrun_dtype_size(param->dtype);
        const size_t all = ct_ddp_param_bytes(param) / each;
        const size_t part = all / (size_t)dp->replicas + 1;
        const size_t begin = part * (size_t)device < all ? part * (size_t)device : all;
        const size_t count = all - begin < part ? all - begin : part;
        void *to;

        if (param->no_grad || count == 0)
            continue;
        for (int i = 0; i < dp->replicas; i++)
            from[i] = (unsigned char *)dp->of[i].grads[p] + begin * each;
        to = (unsigned char *)dp->of[0].grads[p] + begin * each;
        ct_reduce(&how, &to, 1, from, dp->replicas, count);
        for (int i = 1; i < dp->replicas; i++)
            memset((unsigned char *)dp->of[i].grads[p] + begin * each, 0, count * each);
    }
    return 0;
}

int ctrun_dp_reduce(struct ctrun_dp *dp, int replicas, struct ctrun_error *err)
{
    return run_job(dp, "reduce",
                   dp && dp->is_on_gpus ? ct_dp_reduce_on_device : add_part, replicas,
                   (struct ct_dp_call){.fn = NULL}, err);
}

int ctrun_dp_collect(struct ctrun_dp *dp, const struct ctrun_tensor *pieces,
                     size_t count, void *room, size_t room_bytes,
                     struct ctrun_tensor *out, struct ctrun_error *err)
{
    const struct ctrun_tensor defaults = CTRUN_TENSOR_INIT;
    struct ct_dp_call call = {.room = room, .piece_count = count};
    void *list;
    int rc;

    if (!dp)
        return ct_fail_null(err, "DataParallel object");
    if (!dp->is_on_gpus)
        return ctrun_dp_gather(pieces, count, room, room_bytes, out, err);
    if (count > (size_t)dp->devices)
        return ct_fail(err, -EINVAL,
                       "data parallel: collect: %zu pieces, but only %d devices: give "
                       "one piece for each device at most",
                       count, dp->devices);
    if ((rc = ct_sized_read_array(&list, &defaults, sizeof defaults, pieces, count,
                                  "CTRUN_TENSOR_INIT", err)) < 0)
        return ct_wrap(err, "data parallel: pieces"), rc;
    call.pieces = list;
    rc = ct_dp_describe_whole(list, count, room, room_bytes, out, err);
    if (rc == 0)
        rc = run_job(dp, "collect", ct_dp_collect_on_device, dp->devices, call, err);
    free(list);
    return rc;
}
