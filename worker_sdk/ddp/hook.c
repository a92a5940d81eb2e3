/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/hook.h"

#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/half.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/slice.h"

static int options_check(const struct ctrun_ddp_options *options, bool as_half,
                         struct ctrun_error *err)
{
    const int ways = as_half + (options->hook != NULL) + (options->powersgd != NULL);

    if (!as_half && options->reduce_dtype != CTRUN_F32)
        return ct_fail(err, -EINVAL,
                       "ddp: reduce_dtype is %d, but must be CTRUN_F32 (each type as "
                       "it is), CTRUN_F16 or CTRUN_BF16",
                       (int)options->reduce_dtype);
    if (options->hook_done && !options->hook)
        return ct_fail(
            err, -EINVAL,
            "ddp: hook_done is set, but hook is NULL, so nothing would call it");
    if (ways > 1)
        return ct_fail(err, CTRUN_E_USAGE,
                       "ddp: of hook, reduce_dtype and powersgd only one can be set");
    if (options->shard_gradients && (options->hook || options->powersgd))
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "ddp: shard_gradients does not work with %s, which makes whole "
                       "averages",
                       options->hook ? "a hook" : "powersgd");
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

    *hook = (struct ct_hook){.group = group,
                             .start = options->hook,
                             .done = options->hook_done,
                             .context = options->hook_context,
                             .half = options->reduce_dtype};
    if ((rc = options_check(options, as_half, err)) < 0)
        return rc;
    if (hook->start &&
        !(hook->slices = ct_zalloc_array(layout->slot_count, sizeof *hook->slices)))
        return ct_fail(err, -ENOMEM, "ddp: out of memory");
    if (options->powersgd) {
        rc = ct_powersgd_init(&hook->powersgd, group, layout, params, options->powersgd,
                              err);
        return rc == 0 && ct_group_is_device(group)
                   ? ct_powersgd_device_init(&hook->powersgd, err)
                   : rc;
    }
    if (!as_half)
        return 0;
    /* collective, and every rank comes here: reduce_dtype is among the options that
     * ct_ddp_verify() compares */
    rc = ctrun_group_alloc(group, ct_layout_arena_bytes(layout) / 2, &halves, err);
    hook->halves = rc < 0 ? NULL : halves;
    return rc;
}

void ct_hook_deinit(struct ct_hook *hook)
{
    ct_powersgd_deinit(&hook->powersgd);
    if (hook->halves)
        (void)ctrun_group_free(hook->group, hook->halves, NULL);
    hook->halves = NULL;
    free(hook->slices);
    hook->slices = NULL;
}

bool ct_hook_takes(const struct ct_hook *hook, const struct ct_bucket *bucket)
{
    return hook->start ||
           ((hook->halves || hook->powersgd.slots) && bucket->dtype == CTRUN_F32);
}

/* ---- As halves --------------------------------------------------------------------------- */

static uint16_t *halves_of(const struct ct_hook *hook, const struct ct_bucket *bucket)
{
    /* At half the bucket's offset, so that buckets which travel at the same time do not overlap.
     * Offsets are multiples of CT_LAYOUT_ALIGN. */
    return (void *)(hook->halves + bucket->at / 2);
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

static int start_halves(struct ct_hook *hook, struct ct_layout *layout,
                        struct ct_bucket *bucket, enum ctrun_op op,
                        struct ctrun_error *err)
{
    uint16_t *halves = halves_of(hook, bucket);

    shrink(hook, halves, (const void *)bucket->data, bucket->elements);
    bucket->is_hooked = true;
    return ct_slice_reduce(layout, bucket, halves, hook->half, op, NULL, err);
}

static int run_halves(struct ct_hook *hook, struct ct_layout *layout,
                      struct ct_bucket *bucket, enum ctrun_op op, void *stream,
                      struct ctrun_error *err)
{
    const bool is_f16 = hook->half == CTRUN_F16;
    uint16_t *halves = halves_of(hook, bucket);
    struct ct_device_args args = {
        .a = bucket->data, .b = halves, .n = bucket->elements};
    int rc = ct_group_compute(
        hook->group, is_f16 ? CT_DEVICE_TO_F16 : CT_DEVICE_TO_BF16, &args, stream, err);

    if (rc == 0)
        rc = ct_slice_reduce(layout, bucket, halves, hook->half, op, stream, err);
    if (rc == 0)
        rc = ct_slice_let_go(bucket, err);
    args.a = halves;
    args.b = bucket->data;
    return rc < 0 ? rc
                  : ct_group_compute(hook->group,
                                     is_f16 ? CT_DEVICE_FROM_F16 : CT_DEVICE_FROM_BF16,
                                     &args, stream, err);
}

/* ---- All --------------------------------------------------------------------------------- */

/* The part of a bucket that the user sees: all but the flag. */
static struct ctrun_bucket
describe(struct ct_hook *hook, const struct ct_layout *layout, size_t b, void *stream)
{
    const struct ct_bucket *bucket = &layout->buckets[b];
    const struct ct_bucket_plan *plan = &layout->plan;
    const size_t element = ctrun_dtype_size(bucket->dtype);
    bool has_flag = b == layout->bucket_count - 1 && !layout->is_callers;

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
                                 .elements = bucket->elements - has_flag,
                                 .dtype = bucket->dtype,
                                 .slices = hook->slices,
                                 .slice_count = plan->starts[b + 1] - plan->starts[b],
                                 .stream = stream};
}

/* `public` and its slices are valid during this call only: the next bucket overwrites them. */
static int start_users(struct ct_hook *hook, struct ct_layout *layout, size_t b,
                       void *stream, struct ctrun_error *err)
{
    const struct ctrun_bucket public = describe(hook, layout, b, stream);
    struct ct_bucket *bucket = &layout->buckets[b];
    int rc = 0;

    /* What it starts comes behind the gradients: on the group, and on `stream` if some of them came on other streams
     * or are zeroed by the group. */
    if (ct_group_is_device(hook->group))
        rc = bucket->is_mixed ? ct_group_hold_back(hook->group, stream, err)
                              : ct_group_clear(hook->group, NULL, 0, stream, err);
    if (rc < 0)
        return rc;
    if (err)
        err->text[0] = '\0';
    rc = hook->start(hook->context, hook->group, &public, &bucket->work, err);
    bucket->is_hooked = rc >= 0 && hook->done;
    return rc < 0 ? ct_fail_called(err, rc, "ddp: the hook") : 0;
}

static int start_powersgd(struct ct_hook *hook, struct ct_layout *layout, size_t b,
                          enum ctrun_op op, void *stream, struct ctrun_error *err)
{
    struct ct_bucket *bucket = &layout->buckets[b];

    if (!ct_powersgd_begin(&hook->powersgd, layout, b, op))
        return ct_group_all_reduce_start(hook->group, bucket->data, bucket->data,
                                         bucket->elements, CTRUN_F32, op, stream,
                                         &bucket->work, err);
    return ct_group_is_device(hook->group)
               ? ct_powersgd_device_run(&hook->powersgd, layout, b, stream, err)
               : ct_powersgd_start(&hook->powersgd, layout, b, err);
}

int ct_hook_start(struct ct_hook *hook, struct ct_layout *layout, size_t b,
                  enum ctrun_op op, void *stream, struct ctrun_error *err)
{
    struct ct_bucket *bucket = &layout->buckets[b];

    if (hook->start)
        return start_users(hook, layout, b, stream, err);
    if (hook->powersgd.slots)
        return start_powersgd(hook, layout, b, op, stream, err);
    return ct_group_is_device(hook->group)
               ? run_halves(hook, layout, bucket, op, stream, err)
               : start_halves(hook, layout, bucket, op, err);
}

int ct_hook_finish(struct ct_hook *hook, struct ct_layout *layout, size_t b,
                   void *stream, struct ctrun_error *err)
{
    const struct ct_bucket *bucket = &layout->buckets[b];
    struct ctrun_bucket public;
    int rc;

    if (hook->powersgd.slots)
        return ct_powersgd_finish(&hook->powersgd, layout, b, err);
    if (!hook->start) {
        widen(hook, (void *)bucket->data, halves_of(hook, bucket), bucket->elements);
        return 0;
    }
    public = describe(hook, layout, b, stream);
    if (err)
        err->text[0] = '\0';
    rc = hook->done(hook->context, &public, err);
    return rc < 0 ? ct_fail_called(err, rc, "ddp: hook_done") : 0;
}
