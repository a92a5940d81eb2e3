/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas on GPUs: the thread of each device is a member of a group of the NCCL back end, which
 * the threads open inside this process.
 *
 *     replicate   device 0 packs its values into one block, which is broadcast: one call for all
 *                 parameters
 *     reduce      adjacent gradients are reduced to device 0 in one call; then the gradients of
 *                 the other devices are cleared
 *
 * Each call waits until the device has finished the collective, so that later work may use any
 * stream. A failure of one device ends the waits of all: their groups ask did_fail(), as groups of
 * other programs ask the agent. */
#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/layout.h"
#include "worker_sdk/ddp/params.h"
#include "worker_sdk/dp/dp.h"

/* ---- Where the devices meet -------------------------------------------------------------- */

struct entry {
    struct entry *next;
    char key[CT_BOOTSTRAP_KEY_MAX];
    size_t length;
    unsigned char value[];
};

struct ct_dp_meeting {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct entry *entries; /* owned */
    bool is_over;
};

struct ct_dp_meeting *ct_dp_meeting_create(void)
{
    struct ct_dp_meeting *meeting = ct_zalloc(sizeof *meeting);

    if (meeting) {
        pthread_mutex_init(&meeting->lock, NULL);
        ct_cond_init(&meeting->changed);
    }
    return meeting;
}

void ct_dp_meeting_end(struct ct_dp_meeting *meeting)
{
    pthread_mutex_lock(&meeting->lock);
    meeting->is_over = true;
    pthread_cond_broadcast(&meeting->changed);
    pthread_mutex_unlock(&meeting->lock);
}

void ct_dp_meeting_destroy(struct ct_dp_meeting *meeting)
{
    if (!meeting)
        return;
    while (meeting->entries) {
        struct entry *entry = meeting->entries;

        meeting->entries = entry->next;
        free(entry);
    }
    pthread_cond_destroy(&meeting->changed);
    pthread_mutex_destroy(&meeting->lock);
    free(meeting);
}

static int meeting_set(void *context, const char *key, const void *value, size_t length,
                       uint64_t deadline_ms, struct ctrun_error *err)
{
    struct ct_dp_meeting *meeting = context;
    struct entry *entry = ct_zalloc(sizeof *entry + length);

    (void)deadline_ms;
    if (!entry)
        return ct_fail(err, -ENOMEM, "data parallel: out of memory");
    (void)ct_copy(entry->key, sizeof entry->key, key);
    memcpy(entry->value, value, length);
    entry->length = length;
    pthread_mutex_lock(&meeting->lock);
    entry->next = meeting->entries;
    meeting->entries = entry;
    pthread_cond_broadcast(&meeting->changed);
    pthread_mutex_unlock(&meeting->lock);
    return 0;
}

/* Lock held. */
static const struct entry *find(const struct ct_dp_meeting *meeting, const char *key)
{
    const struct entry *entry = meeting->entries;

    while (entry && strcmp(entry->key, key) != 0)
        entry = entry->next;
    return entry;
}

/* value NULL: only waits. */
static int meeting_get(void *context, const char *key, void **value, size_t *length,
                       uint64_t deadline_ms, struct ctrun_error *err)
{
    struct ct_dp_meeting *meeting = context;
    const struct entry *entry;
    bool is_late = false;
    int rc = 0;

    pthread_mutex_lock(&meeting->lock);
    while (!(entry = find(meeting, key)) && !meeting->is_over && !is_late)
        is_late = !ct_cond_wait(&meeting->changed, &meeting->lock, deadline_ms);
    if (!entry)
        rc = meeting->is_over
                 ? ct_fail(err, CTRUN_E_ABORTED, "data parallel: another device failed")
                 : ct_fail(err, CTRUN_E_TIMEOUT,
                           "data parallel: another device did not answer in time");
    else if (value && !(*value = ct_zalloc(entry->length + 1)))
        rc = ct_fail(err, -ENOMEM, "data parallel: out of memory");
    else if (value)
        memcpy(*value, entry->value, *length = entry->length);
    pthread_mutex_unlock(&meeting->lock);
    return rc;
}

static int meeting_wait(void *context, const char *key, uint64_t deadline_ms,
                        struct ctrun_error *err)
{
    return meeting_get(context, key, NULL, NULL, deadline_ms, err);
}

/* ---- Opening and closing ---------------------------------------------------------------- */

/* Called while a device waits for the others. */
static int did_fail(void *context, uint32_t losses, bool leaves_node,
                    struct ctrun_error *err)
{
    const struct ctrun_dp *dp = context;
    const int failed = dp->failed;

    (void)losses;
    (void)leaves_node;
    return failed ? ct_fail(err, CTRUN_E_ABORTED, "data parallel: device %d failed",
                            failed - 1)
                  : 0;
}

static int open_group(struct ctrun_dp *dp, int device, struct ctrun_error *err)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    const struct ct_group_place place = {
        .rank = device,
        .world_size = dp->devices,
        .key = "ctrun/data_parallel",
        .bootstrap = {dp->meeting, meeting_set, meeting_get, meeting_wait},
        .losses = {.check = did_fail, .context = dp},
        .device = 1 + (dp->ids ? dp->ids[device] : device)};

    options.backend = dp->options.backend;
    options.stream = dp->streams ? dp->streams[device] : NULL;
    options.timeout_ms = dp->options.timeout_ms;
    return ct_group_open(&dp->of[device].group, &place, &options, err);
}

/* torch's message. `data` is of params[p]. */
static int check_data(const struct ctrun_group *group, int device, const void *data,
                      const struct ctrun_param *param, struct ctrun_error *err)
{
    const int there = ct_group_find_device(group, data);
    char name[24] = "cpu";

    if (there == device)
        return 0;
    if (there >= 0)
        (void)ct_format(name, sizeof name, "cuda:%d", there);
    return ct_fail(err, -EINVAL,
                   "data parallel: module must have its parameters and buffers on "
                   "device cuda:%d (device_ids[0]) but found one of them on device: "
                   "%s: '%s'",
                   device, name, param->name);
}

static int check_places(const struct ctrun_dp *dp, const struct ct_dp_device *first,
                        struct ctrun_error *err)
{
    int rc = 0;

    for (size_t p = 0; rc == 0 && p < dp->count; p++) {
        const struct ctrun_param *param = &dp->params[p];

        if (ct_ddp_param_bytes(param) == 0)
            continue;
        rc = check_data(first->group, first->facts.device, param->data, param, err);
        if (rc == 0 && param->grad && !param->no_grad)
            rc = check_data(first->group, first->facts.device, param->grad, param, err);
    }
    return rc;
}

/* The bound is torch's. */
void ct_dp_warn_of_imbalance(const struct ctrun_dp *dp)
{
    static const char *const names[] = {
        [CT_DEVICE_MEMORY] = "memory", [CT_DEVICE_PROCESSORS] = "processors"};

    for (int s = 0; s < CT_DEVICE_SIZES; s++) {
        const struct ct_device_facts *least = &dp->of[0].facts, *most = least;

        for (int i = 1; i < dp->devices; i++) {
            const struct ct_device_facts *facts = &dp->of[i].facts;

            least = facts->sizes[s] < least->sizes[s] ? facts : least;
            most = facts->sizes[s] > most->sizes[s] ? facts : most;
        }
        if (least->sizes[s] == 0 || least->sizes[s] * 4 >= most->sizes[s] * 3)
            continue;
        ct_warn("data parallel: the GPUs differ: GPU %d has less than 75%% of the %s "
                "of GPU %d%s: leave it out of ids",
                least->device, names[s], most->device,
                s == CT_DEVICE_PROCESSORS ? ", which will wait for it" : "");
        return;
    }
}

static size_t room_of(const struct ctrun_param *param)
{
    return (ct_ddp_param_bytes(param) + CT_LAYOUT_ALIGN - 1) / CT_LAYOUT_ALIGN *
           CT_LAYOUT_ALIGN;
}

/* Whether each device has the gradient in its block, right behind the gradient before it. */
static bool is_packed(const struct ctrun_param *param)
{
    return !param->no_grad && !param->grad;
}

/* The sizes are the same on all devices, as NCCL requires of registered memory. */
static void measure(const struct ctrun_dp *dp, size_t *values, size_t *grads)
{
    *values = *grads = 0;
    for (size_t p = 0; p < dp->count; p++) {
        *values += room_of(&dp->params[p]);
        *grads += dp->params[p].no_grad ? 0 : room_of(&dp->params[p]);
    }
}

static void place_params(struct ctrun_dp *dp, int device)
{
    struct ct_dp_device *own = &dp->of[device];
    unsigned char *value = own->sent, *grad = own->summed;

    for (size_t p = 0; p < dp->count; p++) {
        const struct ctrun_param *param = &dp->params[p];

        own->values[p] = device ? value : param->data;
        value += room_of(param);
        if (param->no_grad)
            continue;
        own->grads[p] = device == 0 && param->grad ? param->grad : grad;
        grad += room_of(param);
    }
}

/* *out is NULL for 0 bytes. */
static int make_block(struct ctrun_group *group, size_t bytes, unsigned char **out,
                      struct ctrun_error *err)
{
    void *block = NULL;
    int rc = bytes ? ctrun_group_alloc(group, bytes, &block, err) : 0;

    *out = block;
    return rc;
}

int ct_dp_open_device(struct ctrun_dp *dp, int device, struct ctrun_error *err)
{
    struct ct_dp_device *own = &dp->of[device];
    size_t values, grads;
    int rc = open_group(dp, device, err);

    measure(dp, &values, &grads);
    if (rc == 0)
        ct_group_describe_device(own->group, &own->facts);
    if (rc == 0 && device == 0)
        rc = check_places(dp, own, err);
    if (rc == 0)
        rc = make_block(own->group, values, &own->sent, err);
    if (rc == 0)
        rc = make_block(own->group, grads, &own->summed, err);
    if (rc == 0)
        place_params(dp, device);
    return rc;
}

/* Also frees the device's memory. */
int ct_dp_close_device(struct ctrun_dp *dp, int device, struct ctrun_error *err)
{
    (void)err;
    ctrun_group_close(dp->of[device].group);
    dp->of[device].group = NULL;
    return 0;
}

/* ---- Jobs ------------------------------------------------------------------------------- */

static void *stream_of(const struct ctrun_dp *dp, int device)
{
    return dp->streams ? dp->streams[device] : NULL;
}

int ct_dp_replicate_on_device(struct ctrun_dp *dp, int device, struct ctrun_error *err)
{
    const struct ct_dp_device *own = &dp->of[device];
    unsigned char *at = own->sent;
    size_t values, grads;
    int rc = 0;

    measure(dp, &values, &grads);
    for (size_t p = 0; device == 0 && rc == 0 && p < dp->count; p++) {
        rc = ct_group_copy_behind(own->group, at, dp->params[p].data,
                                  ct_ddp_param_bytes(&dp->params[p]),
                                  stream_of(dp, device), err);
        at += room_of(&dp->params[p]);
    }
    if (rc < 0 || values == 0)
        return rc;
    return ctrun_broadcast(own->group, own->sent, own->sent, values, CTRUN_U8, 0, NULL,
                           err);
}

/* One reduction for the gradient of p and the gradients behind it that can be part of the same
 * call; *next is the first that cannot. */
static int reduce_some(struct ctrun_dp *dp, int device, size_t p, size_t *next,
                       struct ctrun_error *err)
{
    const struct ctrun_param *params = dp->params;
    size_t bytes = is_packed(&params[p]) ? room_of(&params[p])
                                         : ct_ddp_param_bytes(&params[p]);
    void *at = dp->of[device].grads[p];

    for (*next = p + 1; is_packed(&params[p]) && *next < dp->count; ++*next) {
        const struct ctrun_param *more = &params[*next];

        if (!more->no_grad && (more->grad || more->dtype != params[p].dtype))
            break;
        bytes += more->no_grad ? 0 : room_of(more);
    }
    return ctrun_reduce(dp->of[device].group, at, device == 0 ? at : NULL,
                        bytes / ctrun_dtype_size(params[p].dtype), params[p].dtype,
                        CTRUN_SUM, 0, NULL, err);
}

int ct_dp_reduce_on_device(struct ctrun_dp *dp, int device, struct ctrun_error *err)
{
    struct ct_dp_device *own = &dp->of[device];
    size_t values, grads, next;
    unsigned char byte;
    int rc = 0;

    for (size_t p = 0; rc == 0 && p < dp->count; p = next) {
        next = p + 1;
        if (!dp->params[p].no_grad)
            rc = reduce_some(dp, device, p, &next, err);
    }
    measure(dp, &values, &grads);
    if (rc < 0 || device == 0 || grads == 0)
        return rc;
    rc = ct_group_clear(own->group, own->summed, grads, stream_of(dp, device), err);
    return rc < 0 ? rc /* wait for the zeroes */
                  : ct_group_copy(own->group, &byte, own->summed, 1,
                                  stream_of(dp, device), err);
}

/* Device 0 receives from the others, one after the other. */
int ct_dp_collect_on_device(struct ctrun_dp *dp, int device, struct ctrun_error *err)
{
    const struct ct_dp_call *call = &dp->call;
    struct ctrun_group *group = dp->of[device].group;
    unsigned char *at = call->room;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < call->piece_count; i++) {
        const struct ctrun_tensor *piece = &call->pieces[i];
        const size_t bytes = ct_dp_piece_bytes(piece);

        if (bytes == 0)
            continue;
        if (device == 0 && i == 0)
            rc = ct_group_copy(group, at, piece->data, bytes, stream_of(dp, 0), err);
        else if (device == 0)
            rc = ctrun_recv(group, at, bytes, CTRUN_U8, (int)i, NULL, err);
        else if ((size_t)device == i)
            rc = ctrun_send(group, piece->data, bytes, CTRUN_U8, 0, NULL, err);
        at += bytes;
    }
    return rc;
}
