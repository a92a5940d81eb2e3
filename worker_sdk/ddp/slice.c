/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/slice.h"

#include "worker_sdk/comm/comm.h"

enum {
    SLICE_ALIGN = 16 /* bytes */
};

static size_t slice_length(const struct ct_layout *layout,
                           const struct ct_bucket *bucket)
{
    const size_t unit = SLICE_ALIGN / ctrun_dtype_size(bucket->dtype);

    return bucket->elements / layout->ranks / unit * unit;
}

struct ct_cut ct_slice_cut(const struct ct_layout *layout, size_t s)
{
    const struct ct_slot *slot = &layout->slots[s];
    const struct ct_bucket *bucket = &layout->buckets[slot->bucket];

    return (struct ct_cut){.begin = (size_t)(slot->grad - bucket->data) /
                                    ctrun_dtype_size(slot->dtype),
                           .slice = slice_length(layout, bucket)};
}

struct ct_piece ct_slice_own(const struct ct_layout *layout, size_t s)
{
    const struct ct_slot *slot = &layout->slots[s];
    struct ct_piece own = {.length = slot->bytes / ctrun_dtype_size(slot->dtype)};
    struct ct_cut cut;

    if (layout->ranks) {
        cut = ct_slice_cut(layout, s);
        own = ct_cut_piece(&cut, own.length, layout->ranks, layout->rank);
    }
    own.param = slot->param;
    return own;
}

int ct_slice_reduce(struct ct_layout *layout, struct ct_bucket *bucket, void *data,
                    enum ctrun_dtype dtype, enum ctrun_op op, void *stream,
                    struct ctrun_error *err)
{
    const size_t slice = layout->ranks ? slice_length(layout, bucket) : 0;
    const size_t element = ctrun_dtype_size(dtype);
    const size_t tail = bucket->elements - slice * layout->ranks;
    uint8_t *at = data;
    int rc = 0;

    if (slice > 0)
        rc = ct_group_reduce_scatter_start(layout->group, at,
                                           at + layout->rank * slice * element, slice,
                                           dtype, op, stream, &bucket->work, err);
    at += slice * layout->ranks * element;
    if (rc == 0 && tail > 0)
        rc = ct_group_all_reduce_start(layout->group, at, at, tail, dtype, op, stream,
                                       &bucket->tail_work, err);
    return rc;
}

int ct_slice_let_go(struct ct_bucket *bucket, struct ctrun_error *err)
{
    struct ctrun_work **const works[] = {&bucket->work, &bucket->tail_work};
    int rc = 0;

    for (size_t i = 0; i < 2; i++) {
        struct ctrun_work *work = *works[i];

        if (!work || rc < 0)
            continue;
        *works[i] = NULL;
        rc = ct_work_let_go(work, err);
    }
    return rc;
}
