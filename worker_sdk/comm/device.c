/* SPDX-License-Identifier: Apache-2.0 */
/* What DDP needs of a group, whether the group's memory is on the host or on a device.
 *
 * On a device only ct_group_copy() waits. A work that is not returned to the caller is released at
 * once: the back end then makes sure that it ends in time. If it fails, the group fails, and the
 * next call returns the failure. */
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/client/flight.h"
#include "worker_sdk/comm/group_private.h"

void ct_group_describe_device(const struct ctrun_group *group,
                              struct ct_device_facts *out)
{
    group->backend->describe_device(group->self, out);
}

int ct_group_find_device(const struct ctrun_group *group, const void *data)
{
    return group->backend->find_device(group->self, data);
}

int ct_work_let_go(struct ctrun_work *work, struct ctrun_error *err)
{
    return ct_work_release(work, NULL, err);
}

int ct_group_all_reduce_start(struct ctrun_group *group, const void *in, void *out_data,
                              size_t count, enum ctrun_dtype dtype, enum ctrun_op op,
                              void *stream, struct ctrun_work **out,
                              struct ctrun_error *err)
{
    const struct ct_call call = {.kind = CT_CALL_ALL_REDUCE,
                                 .in = in,
                                 .out = out_data,
                                 .count = count,
                                 .dtype = dtype,
                                 .op = op};

    return ct_group_start(group, &call, stream, out, err);
}

int ct_group_reduce_scatter_start(struct ctrun_group *group, const void *in,
                                  void *out_data, size_t count, enum ctrun_dtype dtype,
                                  enum ctrun_op op, void *stream,
                                  struct ctrun_work **out, struct ctrun_error *err)
{
    const struct ct_call call = {.kind = CT_CALL_REDUCE_SCATTER,
                                 .in = in,
                                 .out = out_data,
                                 .count = count,
                                 .dtype = dtype,
                                 .op = op};

    return ct_group_start(group, &call, stream, out, err);
}

void *ct_group_stream(const struct ctrun_group *group)
{
    return group->stream;
}

int ct_group_copy(struct ctrun_group *group, void *to, const void *from, size_t bytes,
                  void *stream, struct ctrun_error *err)
{
    struct ct_call call = {.kind = CT_CALL_COPY, .in = from, .out = to, .count = bytes};

    if (bytes == 0)
        return 0;
    if (ct_group_is_device(group))
        return ct_group_run(group, &call, stream, err);
    memcpy(to, from, bytes);
    return 0;
}

int ct_group_fetch_start(struct ctrun_group *group, void *to, const void *from,
                         size_t bytes, void *stream, struct ctrun_work **out,
                         struct ctrun_error *err)
{
    const struct ct_call call = {
        .kind = CT_CALL_COPY, .in = from, .out = to, .count = bytes};

    return ct_group_start(group, &call, stream, out, err);
}

static int start_clear(struct ctrun_group *group, void *at, size_t bytes, void *stream,
                       struct ctrun_work **out, struct ctrun_error *err)
{
    const struct ct_call call = {
        .kind = CT_CALL_CLEAR, .in = at, .out = at, .count = bytes};

    return ct_group_start(group, &call, stream, out, err);
}

int ct_group_clear(struct ctrun_group *group, void *at, size_t bytes, void *stream,
                   struct ctrun_error *err)
{
    struct ctrun_work *work;
    int rc;

    if (!ct_group_is_device(group)) {
        if (bytes)
            memset(at, 0, bytes);
        return 0;
    }
    rc = start_clear(group, at, bytes, stream, &work, err);
    return rc < 0 ? rc : ct_work_release(work, NULL, err);
}

int ct_group_compute(struct ctrun_group *group, enum ct_device_kernel kernel,
                     const struct ct_device_args *args, void *stream,
                     struct ctrun_error *err)
{
    const struct ct_call call = {
        .kind = CT_CALL_COMPUTE, .kernel = kernel, .args = *args};
    struct ctrun_work *work;
    int rc = ct_group_start(group, &call, stream, &work, err);

    return rc < 0 ? rc : ct_work_release(work, NULL, err);
}

int ct_group_copy_behind(struct ctrun_group *group, void *to, const void *from,
                         size_t bytes, void *stream, struct ctrun_error *err)
{
    const struct ct_call call = {
        .kind = CT_CALL_COPY, .in = from, .out = to, .count = bytes};
    struct ctrun_work *work;
    int rc = bytes ? ct_group_start(group, &call, stream, &work, err) : 0;

    return rc < 0 || !bytes ? rc : ct_work_release(work, NULL, err);
}

int ct_work_wait_behind(struct ctrun_work *work, void *stream, struct ctrun_error *err)
{
    return work->is_device ? ct_work_release(work, &stream, err)
                           : ctrun_work_wait(work, err);
}

/* Enqueues a work of 0 bytes to mark a place in the order: after all that is on the group's
 * stream. */
int ct_group_hold_back(struct ctrun_group *group, void *stream, struct ctrun_error *err)
{
    struct ctrun_work *work;
    int rc;

    if (!ct_group_is_device(group))
        return 0;
    rc = start_clear(group, NULL, 0, stream, &work, err);
    return rc < 0 ? rc : ct_work_release(work, &stream, err);
}

/* On a device only. The call's record ends here, because no thread of ours sees when the device has
 * finished. */
int ct_work_release(struct ctrun_work *work, void *const *stream,
                    struct ctrun_error *err)
{
    struct ctrun_group *group = work->group;
    int rc;

    if (work->is_done)
        return ct_work_take_result(work, err);
    if ((rc = ct_group_enter(group, "work wait", err)) < 0)
        return rc;
    rc = ct_group_leave(
        group, group->backend->release(group->self, work->ticket, stream, err));
    ct_flight_end(work->call.flight, rc < 0 ? rc : 1);
    free(work->call.messages);
    free(work);
    return rc;
}

int ctrun_work_wait_on(struct ctrun_work *work, void *stream, struct ctrun_error *err)
{
    if (!work)
        return ct_fail_null(err, "work");
    if (!work->is_device)
        return ct_fail(err, CTRUN_E_USAGE,
                       "work wait: a group of the host has no streams: use "
                       "ctrun_work_wait()");
    return ct_work_release(work, &stream, err);
}
