/* SPDX-License-Identifier: Apache-2.0 */
/* Does with a bucket what powersgd.c does, by kernels of a device, in the order of the group's
 * stream. */
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/powersgd.h"

struct run {
    struct ct_powersgd *powersgd;
    const struct ct_layout *layout;
    void *stream; /* where the gradients come from */
};

static int compute(const struct run *run, enum ct_device_kernel kernel,
                   const struct ct_device_args *args, struct ctrun_error *err)
{
    return ct_group_compute(run->powersgd->group, kernel, args, run->stream, err);
}

int ct_powersgd_device_init(struct ct_powersgd *powersgd, struct ctrun_error *err)
{
    static const uint32_t one = 1;
    size_t count = 0;
    void *memory;
    int rc = ctrun_group_alloc(powersgd->group, CT_WORDS * sizeof one, &memory, err);

    if (rc < 0)
        return rc;
    powersgd->words = memory;
    if ((rc = ct_group_copy(powersgd->group, powersgd->words + CT_WORD_ALWAYS, &one,
                            sizeof one, NULL, err)) < 0)
        return rc;
    for (size_t s = 0; s < powersgd->slot_count; s++)
        count += powersgd->slots[s].k ? powersgd->slots[s].n * powersgd->slots[s].m : 0;
    if (powersgd->options.no_error_feedback || count == 0)
        return 0;
    if ((rc = ctrun_group_alloc(powersgd->group, count * sizeof(float), &memory, err)) <
        0)
        return rc;
    powersgd->errors = memory;
    count = 0;
    for (size_t s = 0; s < powersgd->slot_count; s++) {
        struct ct_low_rank *shape = &powersgd->slots[s];

        if (!shape->k)
            continue;
        shape->error = powersgd->errors + count;
        count += shape->n * shape->m;
    }
    return 0;
}

/* Adds to the gradient what was left out before; drops that where it has a NaN. */
static int add_error(const struct run *run, const struct ct_low_rank *shape,
                     const void *grad, struct ctrun_error *err)
{
    const uint64_t count = shape->n * shape->m;
    struct ct_device_args args = {.a = shape->error,
                                  .c = run->powersgd->words + CT_WORD_BAD_ERROR,
                                  .n = count,
                                  .k = 1};
    int rc;

    if (!shape->error)
        return 0;
    if ((rc = compute(run, CT_DEVICE_MARK_F32, &args, err)) < 0 ||
        (rc = compute(run, CT_DEVICE_CLEAR_IF, &args, err)) < 0)
        return rc;
    args = (struct ct_device_args){.a = grad, .b = shape->error, .n = count};
    return compute(run, CT_DEVICE_ADD_BOTH, &args, err);
}

/* Q: random in the first step, and wherever there is a NaN in it; else that of the last step. */
static int make_q(const struct run *run, size_t s, struct ctrun_error *err)
{
    const struct ct_powersgd *powersgd = run->powersgd;
    const struct ct_low_rank *shape = &powersgd->slots[s];
    bool is_new = powersgd->step == powersgd->options.start_step ||
                  powersgd->options.no_warm_start;
    struct ct_device_args args = {.a = powersgd->q + shape->q,
                                  .c = powersgd->words +
                                       (is_new ? CT_WORD_ALWAYS : CT_WORD_BAD_Q),
                                  .n = ct_low_rank_q(shape),
                                  .m = ct_powersgd_seed(powersgd, s),
                                  .k = 1};
    int rc = is_new ? 0 : compute(run, CT_DEVICE_MARK_F32, &args, err);

    if (rc < 0 || (rc = compute(run, CT_DEVICE_DRAW_IF, &args, err)) < 0)
        return rc;
    args.n = shape->m;
    args.k = shape->k;
    args.by = powersgd->options.epsilon;
    return compute(run, CT_DEVICE_MAKE_ORTHONORMAL, &args, err);
}

static int compress(const struct run *run, size_t s, struct ctrun_error *err)
{
    struct ct_powersgd *powersgd = run->powersgd;
    const struct ct_slot *slot = &run->layout->slots[s];
    const struct ct_low_rank *shape = &powersgd->slots[s];
    const struct ct_device_args args = {.a = slot->grad,
                                        .b = powersgd->q + shape->q,
                                        .c = powersgd->p + shape->p,
                                        .n = shape->n,
                                        .m = shape->m,
                                        .k = shape->k};
    int rc;

    if (!shape->k)
        return ct_group_copy_behind(powersgd->group, powersgd->p + shape->p, slot->grad,
                                    slot->bytes, run->stream, err);
    if ((rc = ct_group_clear(powersgd->group, powersgd->words + CT_WORD_BAD_ERROR,
                             (CT_WORDS - CT_WORD_BAD_ERROR) * sizeof *powersgd->words,
                             run->stream, err)) < 0 ||
        (rc = add_error(run, shape, slot->grad, err)) < 0 ||
        (rc = make_q(run, s, err)) < 0)
        return rc;
    return compute(run, CT_DEVICE_MULTIPLY, &args, err);
}

static int make_second(const struct run *run, size_t s, struct ctrun_error *err)
{
    const struct ct_powersgd *powersgd = run->powersgd;
    const struct ct_low_rank *shape = &powersgd->slots[s];
    struct ct_device_args args = {.a = powersgd->p + shape->p,
                                  .n = shape->n,
                                  .k = shape->k,
                                  .by = powersgd->options.epsilon};
    int rc = shape->k ? compute(run, CT_DEVICE_MAKE_ORTHONORMAL, &args, err) : 0;

    if (rc < 0 || !shape->k)
        return rc;
    args = (struct ct_device_args){.a = run->layout->slots[s].grad,
                                   .b = powersgd->p + shape->p,
                                   .c = powersgd->q + shape->q,
                                   .n = shape->n,
                                   .m = shape->m,
                                   .k = shape->k};
    return compute(run, CT_DEVICE_MULTIPLY_TRANSPOSED, &args, err);
}

static int divide(const struct run *run, const void *at, size_t count,
                  struct ctrun_error *err)
{
    const struct ct_device_args args = {
        .a = at, .n = count, .by = ctrun_group_size(run->powersgd->group)};

    return run->powersgd->is_sum ? 0 : compute(run, CT_DEVICE_DIVIDE, &args, err);
}

static int take_back(const struct run *run, size_t s, struct ctrun_error *err)
{
    const struct ct_powersgd *powersgd = run->powersgd;
    const struct ct_slot *slot = &run->layout->slots[s];
    const struct ct_low_rank *shape = &powersgd->slots[s];
    struct ct_device_args args = {.a = slot->grad,
                                  .b = powersgd->p + shape->p,
                                  .c = powersgd->q + shape->q,
                                  .n = shape->n,
                                  .m = shape->m,
                                  .k = shape->k};
    int rc;

    if (!shape->k) {
        rc = ct_group_copy_behind(powersgd->group, slot->grad, powersgd->p + shape->p,
                                  slot->bytes, run->stream, err);
        return rc < 0 ? rc : divide(run, slot->grad, shape->n * shape->m, err);
    }
    if ((rc = divide(run, powersgd->q + shape->q, ct_low_rank_q(shape), err)) < 0 ||
        (rc = compute(run, CT_DEVICE_DECOMPRESS, &args, err)) < 0 || !shape->error)
        return rc;
    args = (struct ct_device_args){
        .a = shape->error, .b = slot->grad, .n = shape->n * shape->m};
    return compute(run, CT_DEVICE_SUBTRACT, &args, err);
}

static int add_up(const struct run *run, float *at, size_t count,
                  struct ctrun_error *err)
{
    struct ctrun_work *work;
    int rc = count ? ct_group_all_reduce_start(run->powersgd->group, at, at, count,
                                               CTRUN_F32, CTRUN_SUM, run->stream, &work,
                                               err)
                   : 0;

    return rc < 0 || !count ? rc : ct_work_let_go(work, err);
}

/* `each` for the slots of bucket b. */
static int for_slots(const struct run *run, size_t b,
                     int (*each)(const struct run *, size_t, struct ctrun_error *),
                     struct ctrun_error *err)
{
    const struct ct_bucket_plan *plan = &run->layout->plan;
    int rc = 0;

    for (size_t i = plan->starts[b]; rc == 0 && i < plan->starts[b + 1]; i++)
        rc = each(run, plan->members[i], err);
    return rc;
}

int ct_powersgd_device_run(struct ct_powersgd *powersgd, struct ct_layout *layout,
                           size_t b, void *stream, struct ctrun_error *err)
{
    const struct run run = {powersgd, layout, stream};
    const struct ct_bucket_plan *plan = &layout->plan;
    const struct ct_low_rank *first = &powersgd->slots[plan->members[plan->starts[b]]];
    bool has_flag = b == layout->bucket_count - 1 && !layout->is_callers;
    size_t p = 0, q = 0;
    int rc;

    for (size_t i = plan->starts[b]; i < plan->starts[b + 1]; i++) {
        p += ct_low_rank_p(&powersgd->slots[plan->members[i]]);
        q += ct_low_rank_q(&powersgd->slots[plan->members[i]]);
    }
    if ((rc = for_slots(&run, b, compress, err)) == 0 && has_flag)
        rc = ct_group_copy_behind(powersgd->group, powersgd->p + first->p + p,
                                  layout->flag, sizeof(float), stream, err);
    if (rc == 0 &&
        (rc = add_up(&run, powersgd->p + first->p, p + has_flag, err)) == 0 &&
        (rc = for_slots(&run, b, make_second, err)) == 0 &&
        (rc = add_up(&run, powersgd->q + first->q, q, err)) == 0)
        rc = for_slots(&run, b, take_back, err);
    if (rc == 0 && has_flag)
        rc = ct_group_copy_behind(powersgd->group, layout->flag,
                                  powersgd->p + first->p + p, sizeof(float), stream,
                                  err);
    return rc;
}
