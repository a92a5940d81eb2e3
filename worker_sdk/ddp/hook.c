/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/hook.h"

#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/half.h"
#include "worker_sdk/comm/comm.h"

static int options_check(const struct ctrun_ddp_options *options, bool as_half,
                         const struct ctrun_group *group, struct ctrun_error *err)
{
    const int ways = as_half + (options->hook != NULL) + (options->powersgd != NULL);

    if (!as_half && options->reduce_dtype != CTRUN_F32)
        return ct_fail(err, -EINVAL,
                       "ddp: reduce_dtype %d: CTRUN_F32 (each type as it is), "
                       "CTRUN_F16 or CTRUN_BF16",
                       (int)options->reduce_dtype);
    if (ways > 1)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: hook, reduce_dtype and powersgd: give one");
    if (ways > 0 && ct_group_is_device(group))
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "ddp: hook, reduce_dtype and powersgd need a group of the host");
    return 0;
}

int ct_hook_init(struct ct_hook *hook, struct ctrun_group *group,
                 const struct ct_layout *layout, const struct ctrun_param *params,
                 const struct ctrun_ddp_options *options, struct ctrun_error *err)
{
    bool as_half = options->reduce_dtype == CTRUN_F16 ||
                   options->reduce_dtype == CTRUN_BF16;
    void *halves;
    int rc;

    *hook = (struct ct_hook){.start = options->hook,
                             .done = options->hook_done,
                             .context = options->hook_context,
                             .half = options->reduce_dtype};
    if ((rc = options_check(options, as_half, group, err)) < 0)
        return rc;
    if (hook->start &&
        !(hook->slices = ct_zalloc_array(layout->slot_count, sizeof *hook->slices)))
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    if (options->powersgd)
        return ct_powersgd_init(&hook->powersgd, group, layout, params,
                                options->powersgd, err);
    if (!as_half)
        return 0;
    /* collective, and every rank comes here: reduce_dtype is among the options that
     * ct_ddp_verify() compares */
    rc = ctrun_group_alloc(group, ct_layout_arena_bytes(layout) / 2, &halves, err);
    hook->halves = rc < 0 ? NULL : halves;
    return rc;
}

/* `halves` is memory of the group, which frees it. */
void ct_hook_deinit(struct ct_hook *hook)
{
    ct_powersgd_deinit(&hook->powersgd);
    free(hook->slices);
    hook->slices = NULL;
}

bool ct_hook_takes(const struct ct_hook *hook, const struct ct_bucket *bucket)
{
    return hook->start ||
           ((hook->halves || hook->powersgd.slots) && bucket->dtype == CTRUN_F32);
}

/* ---- As halves --------------------------------------------------------------------------- */

static uint16_t *halves_of(const struct ct_hook *hook, const struct ct_layout *layout,
                           const struct ct_bucket *bucket)
{
    /* At half the bucket's offset, so that buckets which travel at the same time do not overlap.
     * Offsets are multiples of CT_LAYOUT_ALIGN. */
    return (void *)(hook->halves + (bucket->data - layout->arena) / 2);
}

static void shrink(const struct ct_hook *hook, uint16_t *to, const float *from,
                   size_t count)
{
    if (hook->half == CTRUN_F16)
        for (size_t i = 0; i < count; i++)
            to[i] = ct_f16_of_float(from[i]);
    else
        for (size_t i = 0; i < count; i++)
            to[i] = ct_bf16_of_float(from[i]);
}

static void widen(const struct ct_hook *hook, float *to, const uint16_t *from,
                  size_t count)
{
    if (hook->half == CTRUN_F16)
        for (size_t i = 0; i < count; i++)
            to[i] = ct_float_of_f16(from[i]);
    else
        for (size_t i = 0; i < count; i++)
            to[i] = ct_float_of_bf16(from[i]);
}

/* ---- All --------------------------------------------------------------------------------- */

/* What the user sees of a bucket: all but the flag. */
static struct ctrun_bucket describe(struct ct_hook *hook,
                                    const struct ct_layout *layout, size_t b)
{
    const struct ct_bucket *bucket = &layout->buckets[b];
    const struct ct_bucket_plan *plan = &layout->plan;
    const size_t element = ctrun_dtype_size(bucket->dtype);
    bool is_last = b == layout->bucket_count - 1;

    for (size_t i = plan->starts[b]; i < plan->starts[b + 1]; i++) {
        const struct ct_slot *slot = &layout->slots[plan->members[i]];

        hook->slices[i - plan->starts[b]] = (struct ctrun_slice){
            .param = slot->param,
            .offset = (size_t)(slot->grad - bucket->data) / element,
            .elements = slot->bytes / element};
    }
    return (struct ctrun_bucket){.size = sizeof(struct ctrun_bucket),
                                 .index = b,
                                 .count = layout->bucket_count,
                                 .data = bucket->data,
                                 .elements = bucket->elements - is_last,
                                 .dtype = bucket->dtype,
                                 .slices = hook->slices,
                                 .slice_count = plan->starts[b + 1] - plan->starts[b]};
}

int ct_hook_start(struct ct_hook *hook, struct ctrun_group *group,
                  struct ct_layout *layout, size_t b, enum ctrun_op op,
                  struct ctrun_error *err)
{
    struct ct_bucket *bucket = &layout->buckets[b];
    struct ctrun_bucket public;
    uint16_t *halves;
    int rc;

    /* `public` and its slices are valid for the call alone: another bucket overwrites them. */
    if (hook->start) {
        public = describe(hook, layout, b);
        rc = hook->start(hook->context, group, &public, &bucket->work, err);
        return rc < 0 ? rc : 0;
    }
    if (hook->powersgd.slots)
        return ct_powersgd_start(&hook->powersgd, layout, b, op, err);
    halves = halves_of(hook, layout, bucket);
    shrink(hook, halves, (const void *)bucket->data, bucket->elements);
    return ct_group_all_reduce_start(group, halves, halves, bucket->elements,
                                     hook->half, op, NULL, &bucket->work, err);
}

int ct_hook_finish(struct ct_hook *hook, struct ct_layout *layout, size_t b,
                   struct ctrun_error *err)
{
    struct ctrun_bucket public;
    const struct ct_bucket *bucket = &layout->buckets[b];
    int rc = 0;

    if (hook->powersgd.slots)
        rc = ct_powersgd_finish(&hook->powersgd, layout, b, err);
    else if (!hook->start)
        widen(hook, (void *)bucket->data, halves_of(hook, layout, bucket),
              bucket->elements);
    else if (hook->done) {
        public = describe(hook, layout, b);
        rc = hook->done(hook->context, &public, err);
    }
    return rc < 0 ? rc : 0;
}
