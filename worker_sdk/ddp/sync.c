/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/sync.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/bucket.h"
#include "worker_sdk/ddp/params.h"

/* The bytes of one bucket into `flat` or back. */
static int copy_flat(struct ctrun_group *group, const struct ctrun_param *params,
                     const size_t *members, size_t length, uint8_t *flat, bool back,
                     void *stream, struct ctrun_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < length; i++) {
        const struct ctrun_param *param = &params[members[i]];
        size_t bytes = ct_ddp_param_bytes(param);

        rc = ct_group_copy(group, back ? param->data : flat, back ? flat : param->data,
                           bytes, stream, err);
        flat += bytes;
    }
    return rc;
}

static int sync_bucket(struct ctrun_group *group, const struct ctrun_param *params,
                       const size_t *members, size_t length, int root, void *stream,
                       struct ctrun_error *err)
{
    struct ctrun_call_options options = CTRUN_CALL_OPTIONS_INIT;
    bool is_root = ctrun_group_rank(group) == root;
    size_t bytes = 0;
    uint8_t *flat;
    int rc;

    for (size_t i = 0; i < length; i++)
        bytes += ct_ddp_param_bytes(&params[members[i]]);
    if (bytes == 0)
        return 0;
    options.stream = stream;
    if (length == 1) /* nothing to gather */
        return ctrun_broadcast(group, params[members[0]].data, params[members[0]].data,
                               bytes, CTRUN_U8, root, &options, err);
    if (!(flat = ct_zalloc(bytes)))
        return ct_fail(err, -ENOMEM, "ddp: out of memory for %zu bytes", bytes);
    rc = is_root ? copy_flat(group, params, members, length, flat, false, stream, err)
                 : 0;
    if (rc == 0)
        rc = ctrun_broadcast(group, flat, flat, bytes, CTRUN_U8, root, NULL, err);
    if (rc == 0 && !is_root)
        rc = copy_flat(group, params, members, length, flat, true, stream, err);
    free(flat);
    return rc;
}

int ct_ddp_sync(struct ctrun_group *group, const struct ctrun_param *params,
                size_t count, int root, void *stream, struct ctrun_error *err)
{
    static const uint64_t limit = CT_DDP_SYNC_BYTES;
    struct ct_bucket_tensor *tensors = ct_zalloc_array(count, sizeof *tensors);
    struct ct_bucket_plan plan = {.count = 0};
    int rc = tensors ? 0 : -ENOMEM;

    for (size_t p = 0; tensors && p < count; p++)
        tensors[p] = (struct ct_bucket_tensor){.bytes = ct_ddp_param_bytes(&params[p]),
                                               .key = (int)params[p].dtype};
    if (rc == 0)
        rc = ct_bucket_assign(&plan, tensors, count, NULL, &limit, 1);
    if (rc < 0)
        ct_fail(err, rc, "ddp: out of memory");
    for (size_t b = 0; rc == 0 && b < plan.count; b++)
        rc = sync_bucket(group, params, plan.members + plan.starts[b],
                         plan.starts[b + 1] - plan.starts[b], root, stream, err);
    ct_bucket_plan_deinit(&plan);
    free(tensors);
    return rc;
}
