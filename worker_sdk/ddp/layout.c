/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/params.h"

int ct_layout_init(struct ct_layout *layout, const struct ctrun_param *params,
                   size_t count)
{
    *layout = (struct ct_layout){.slot_count = 0};
    if (!(layout->slots = ct_zalloc_array(count, sizeof *layout->slots)))
        return -ENOMEM;
    for (size_t p = 0; p < count; p++) {
        if (params[p].no_grad)
            continue;
        layout->slots[layout->slot_count++] = (struct ct_slot){
            .param = p,
            .bytes = ct_ddp_param_bytes(&params[p]),
            .dtype = params[p].dtype,
            .grad = params[p].grad};
        layout->is_callers = layout->is_callers || params[p].grad;
    }
    return 0;
}

void ct_layout_deinit(struct ct_layout *layout)
{
    for (size_t s = 0; s < layout->slot_count; s++)
        free(layout->slots[s].kept);
    if (layout->arena) /* the group's close frees it where this fails */
        (void)ctrun_group_free(layout->group, layout->arena, NULL);
    free(layout->slots);
    free(layout->buckets);
    ct_bucket_plan_deinit(&layout->plan);
    *layout = (struct ct_layout){.slot_count = 0};
}

static size_t align_up(size_t bytes)
{
    return (bytes + CT_LAYOUT_ALIGN - 1) / CT_LAYOUT_ALIGN * CT_LAYOUT_ALIGN;
}

size_t ct_layout_arena_bytes(const struct ct_layout *layout)
{
    size_t bytes = CT_LAYOUT_ALIGN; /* the flag */

    for (size_t s = 0; s < layout->slot_count; s++)
        bytes += align_up(layout->slots[s].bytes);
    return bytes;
}

int ct_layout_assign(const struct ct_layout *layout, struct ct_bucket_plan *out,
                     const size_t *order, const uint64_t *limits, size_t limit_count)
{
    struct ct_bucket_tensor *tensors = ct_zalloc_array(layout->slot_count,
                                                       sizeof *tensors);
    int rc;

    if (!tensors)
        return -ENOMEM;
    for (size_t s = 0; s < layout->slot_count; s++)
        tensors[s] = (struct ct_bucket_tensor){.bytes = layout->slots[s].bytes,
                                               .key = (int)layout->slots[s].dtype};
    rc = ct_bucket_assign(out, tensors, layout->slot_count, order, limits, limit_count);
    free(tensors);
    return rc;
}

/* Fills bucket b of the plan from arena offset `at`; returns the offset behind its slots. */
static size_t place_bucket(struct ct_layout *layout, size_t b, size_t at)
{
    const struct ct_bucket_plan *plan = &layout->plan;
    struct ct_bucket *bucket = &layout->buckets[b];
    const size_t begin = at;

    bucket->at = at;
    bucket->data = layout->arena + at;
    for (size_t i = plan->starts[b]; i < plan->starts[b + 1]; i++) {
        struct ct_slot *slot = &layout->slots[plan->members[i]];

        slot->bucket = b;
        slot->grad = layout->arena + at;
        at += align_up(slot->bytes);
        bucket->dtype = slot->dtype;
        bucket->bytes += slot->bytes;
    }
    bucket->elements = (at - begin) / ctrun_dtype_size(bucket->dtype);
    return at;
}

/* Copies the gradients from `before` to the new places of their slots. Old and new places overlap,
 * so the gradients go through `before`, a copy of the whole arena. Only slots that hold a gradient
 * are written back; the rest, pads and flag are zero. */
static int move_gradients(struct ct_layout *layout, uint8_t *before, void *stream,
                          struct ctrun_error *err)
{
    size_t arena_bytes = ct_layout_arena_bytes(layout);
    int rc = ct_group_clear(layout->group, layout->arena, arena_bytes, stream, err);

    for (size_t s = 0; rc == 0 && s < layout->slot_count; s++) {
        const struct ct_slot *slot = &layout->slots[s];

        if (slot->is_present)
            rc = ct_group_copy(layout->group, slot->grad, before + slot->old,
                               slot->bytes, stream, err);
    }
    if (rc == 0) /* the next kernel may be on any stream: wait for the zeroes */
        rc = ct_group_copy(layout->group, before, layout->arena, 1, stream, err);
    return rc;
}

static int adopt(struct ct_layout *layout, struct ct_bucket_plan *plan,
                 struct ct_bucket *buckets, uint8_t *before, void *stream,
                 struct ctrun_error *err)
{
    size_t at = 0;

    free(layout->buckets);
    ct_bucket_plan_deinit(&layout->plan);
    layout->buckets = buckets;
    layout->bucket_count = plan->count;
    layout->plan = *plan;
    *plan = (struct ct_bucket_plan){.count = 0};
    for (size_t s = 0; s < layout->slot_count; s++) {
        struct ct_slot *slot = &layout->slots[s];

        slot->old = slot->grad ? (size_t)(slot->grad - layout->arena) : 0;
    }
    for (size_t b = 0; b < layout->bucket_count; b++)
        at = place_bucket(layout, b, at);
    layout->flag = layout->arena + at;
    /* the flag travels with the last bucket; arena_bytes() has room for it behind any plan */
    layout->buckets[layout->bucket_count - 1].elements++;
    return move_gradients(layout, before, stream, err);
}

/* Everything that can fail for want of memory comes before adopt(), which drops the old layout. */
int ct_layout_place(struct ct_layout *layout, struct ct_bucket_plan *plan, void *stream,
                    struct ctrun_error *err)
{
    size_t arena_bytes = ct_layout_arena_bytes(layout);
    struct ct_bucket *buckets = ct_zalloc_array(plan->count, sizeof *buckets);
    uint8_t *before = ct_zalloc(arena_bytes);
    int rc = buckets && before ? 0 : ct_fail(err, -ENOMEM, "ddp: out of memory");

    if (rc == 0)
        rc = ct_group_copy(layout->group, before, layout->arena, arena_bytes, stream,
                           err);
    if (rc == 0) {
        rc = adopt(layout, plan, buckets, before, stream, err);
    } else {
        free(buckets);
        ct_bucket_plan_deinit(plan);
    }
    free(before);
    return rc;
}

/* Whether b's memory ends where a's begins (-1), begins where it ends (1), or neither (0). */
static int side_of(const struct ct_slot *a, const struct ct_slot *b)
{
    if (a->dtype != b->dtype)
        return 0;
    return (a->grad + a->bytes == b->grad) - (b->grad + b->bytes == a->grad);
}

uint64_t ct_layout_neighbours(const struct ct_layout *layout)
{
    uint64_t digest = CT_HASH_START;

    for (size_t s = 1; s < layout->slot_count; s++) {
        int side = side_of(&layout->slots[s - 1], &layout->slots[s]);

        digest = ct_hash_add(digest, &side, sizeof side);
    }
    return digest;
}

/* members: room for those of the bucket, which has `length`; the lowest address stays first. */
static void add_slot(struct ct_bucket *bucket, size_t *members, size_t length,
                     const struct ct_slot *slot, size_t s)
{
    bool is_first = length == 0 || slot->grad < bucket->data;

    if (is_first)
        memmove(members + 1, members, length * sizeof *members);
    members[is_first ? 0 : length] = s;
    bucket->dtype = slot->dtype;
    bucket->data = is_first ? slot->grad : bucket->data;
    bucket->bytes += slot->bytes;
    bucket->elements = bucket->bytes / ctrun_dtype_size(slot->dtype);
}

int ct_layout_cut(struct ct_layout *layout, const uint64_t *limits, size_t limit_count,
                  bool joins)
{
    struct ct_bucket *buckets = ct_zalloc_array(layout->slot_count, sizeof *buckets);
    struct ct_bucket_plan *plan = &layout->plan;
    size_t length = 0, at = 0, limit = 0;

    plan->members = ct_zalloc_array(layout->slot_count, sizeof *plan->members);
    plan->starts = ct_zalloc_array(layout->slot_count + 1, sizeof *plan->starts);
    layout->buckets = buckets;
    if (!buckets || !plan->members || !plan->starts)
        return -ENOMEM;
    for (size_t s = layout->slot_count; s-- > 0;) {
        struct ct_slot *slot = &layout->slots[s];
        struct ct_bucket *bucket = &buckets[plan->count ? plan->count - 1 : 0];

        if (length == 0 || !joins || bucket->bytes >= limits[limit] ||
            side_of(slot, slot + 1) == 0) {
            limit += length > 0 && limit + 1 < limit_count;
            at += align_up(bucket->bytes);
            bucket = &buckets[plan->count++];
            bucket->at = at;
            length = 0;
        }
        add_slot(bucket, plan->members + plan->starts[plan->count - 1], length++, slot,
                 s);
        slot->bucket = plan->count - 1;
        plan->starts[plan->count] = plan->starts[plan->count - 1] + length;
    }
    layout->bucket_count = plan->count;
    layout->flag = layout->arena;
    return 0;
}

static enum ctrun_dtype flag_dtype(const struct ct_layout *layout)
{
    return layout->buckets[layout->bucket_count - 1].dtype;
}

size_t ct_layout_flag_bytes(const struct ct_layout *layout)
{
    return ctrun_dtype_size(flag_dtype(layout));
}

/* 1.0 in each type. */
uint64_t ct_layout_flag_up(const struct ct_layout *layout)
{
    switch (flag_dtype(layout)) {
    case CTRUN_F64: return UINT64_C(0x3ff0000000000000);
    case CTRUN_F16: return 0x3c00;
    case CTRUN_BF16: return 0x3f80;
    default: return 0x3f800000;
    }
}

int ct_layout_set_flag(struct ct_layout *layout, bool is_up, void *stream,
                       struct ctrun_error *err)
{
    const size_t bytes = ct_layout_flag_bytes(layout);
    const uint64_t one = ct_layout_flag_up(layout); /* its first bytes: little-endian */

    if (!is_up)
        return ct_group_clear(layout->group, layout->flag, bytes, stream, err);
    return ct_group_copy(layout->group, layout->flag, &one, bytes, stream, err);
}
