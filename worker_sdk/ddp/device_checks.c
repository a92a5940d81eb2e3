/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/device_checks.h"

#include "worker_sdk/comm/comm.h"
#include "worker_sdk/ddp/params.h"
#include "worker_sdk/ddp/slice.h"

/* Memory of the device: this, a sum of squares for each slot, a digest for each parameter. */
struct on_device {
    struct ct_device_found found;
    double parts[CT_DEVICE_PARTS_MAX]; /* of the sum that is being made */
};

static struct on_device *whole(const struct ct_device_checks *checks)
{
    return (void *)checks->memory;
}

static double *squares(const struct ct_device_checks *checks)
{
    return (void *)(checks->memory + sizeof(struct on_device));
}

static uint64_t *digests(const struct ct_device_checks *checks)
{
    return (void *)(squares(checks) + checks->slot_count);
}

int ct_checks_init(struct ct_device_checks *checks, struct ctrun_group *group,
                   size_t slot_count, size_t param_count, struct ctrun_error *err)
{
    const size_t bytes = sizeof(struct on_device) + slot_count * sizeof(double) +
                         param_count * sizeof(uint64_t);
    void *memory;
    int rc = ctrun_group_alloc(group, bytes, &memory, err);

    *checks = (struct ct_device_checks){
        .group = group, .slot_count = slot_count, .param_count = param_count};
    if (rc == 0)
        checks->memory = memory;
    return rc;
}

void ct_checks_deinit(struct ct_device_checks *checks)
{
    if (checks->memory) /* the group's close frees it where this fails */
        (void)ctrun_group_free(checks->group, checks->memory, NULL);
    *checks = (struct ct_device_checks){.group = NULL};
}

/* Of four kernels that stand side by side, the one for gradients of this type. */
static enum ct_device_kernel of_dtype(enum ct_device_kernel f16, enum ctrun_dtype dtype)
{
    return f16 + (dtype == CTRUN_F16    ? 0
                  : dtype == CTRUN_BF16 ? 1
                  : dtype == CTRUN_F32  ? 2
                                        : 3);
}

_Static_assert(CT_DEVICE_MARK_F64 - CT_DEVICE_MARK_F16 == 3 &&
                   CT_DEVICE_SQUARES_F64 - CT_DEVICE_SQUARES_F16 == 3 &&
                   CT_DEVICE_SCALE_F64 - CT_DEVICE_SCALE_F16 == 3,
               "of_dtype() counts on it");

static uint64_t elements_of(const struct ct_slot *slot)
{
    return slot->bytes / ctrun_dtype_size(slot->dtype);
}

/* ---- Finite? ----------------------------------------------------------------------------- */

static int forget(struct ct_device_checks *checks, void *stream,
                  struct ctrun_error *err)
{
    const size_t from = offsetof(struct ct_device_found, bad_norm);

    return ct_group_clear(checks->group, checks->memory + from,
                          sizeof(struct ct_device_found) - from, stream, err);
}

/* `stream` waits: a graph that is launched on it writes the same memory. */
static int forget_between(struct ct_device_checks *checks, void *stream,
                          struct ctrun_error *err)
{
    int rc = forget(checks, stream, err);

    return rc < 0 ? rc : ct_group_hold_back(checks->group, stream, err);
}

int ct_checks_begin(struct ct_device_checks *checks, void *stream,
                    struct ctrun_error *err)
{
    checks->has_found = false;
    return forget(checks, stream, err);
}

int ct_checks_look_at(struct ct_device_checks *checks, const struct ct_layout *layout,
                      size_t s, void *stream, struct ctrun_error *err)
{
    const struct ct_slot *slot = &layout->slots[s];
    const struct ct_device_args args = {.a = slot->grad,
                                        .c = &whole(checks)->found.bad_grad,
                                        .n = elements_of(slot),
                                        .k = s + 1};

    return ct_group_compute(checks->group, of_dtype(CT_DEVICE_MARK_F16, slot->dtype),
                            &args, stream, err);
}

int ct_checks_raise_flag(struct ct_device_checks *checks, struct ct_layout *layout,
                         void *stream, struct ctrun_error *err)
{
    const struct ct_device_args args = {.a = &whole(checks)->found.bad_grad,
                                        .b = layout->flag,
                                        .m = ct_layout_flag_up(layout),
                                        .k = ct_layout_flag_bytes(layout)};

    return ct_group_compute(checks->group, CT_DEVICE_RAISE, &args, stream, err);
}

int ct_checks_find(struct ct_device_checks *checks, void *stream, long *slot,
                   struct ctrun_error *err)
{
    uint64_t bad = 0;
    int rc = 0;

    if (checks->has_found)
        bad = checks->found.bad_grad;
    else
        rc = ct_group_copy(checks->group, &bad, &whole(checks)->found.bad_grad,
                           sizeof bad, stream, err);
    checks->found.bad_grad = 0; /* it is reported once */
    *slot = (long)bad - 1;
    return rc == 0 && bad && !checks->has_found ? forget_between(checks, stream, err)
                                                : rc;
}

/* ---- How long? --------------------------------------------------------------------------- */

static uint8_t *begin_of(const struct ct_slot *slot, const struct ct_piece *own)
{
    return slot->grad + own->offset * ctrun_dtype_size(slot->dtype);
}

static int add_squares(struct ct_device_checks *checks, const struct ct_layout *layout,
                       size_t s, void *stream, struct ctrun_error *err)
{
    const struct ct_slot *slot = &layout->slots[s];
    const struct ct_piece own = ct_slice_own(layout, s);
    struct ct_device_args args = {
        .a = begin_of(slot, &own), .b = whole(checks)->parts, .n = own.length};
    int rc = ct_group_compute(checks->group,
                              of_dtype(CT_DEVICE_SQUARES_F16, slot->dtype), &args,
                              stream, err);

    args = (struct ct_device_args){.a = whole(checks)->parts,
                                   .c = squares(checks) + s,
                                   .n = ct_device_parts(own.length)};
    return rc < 0
               ? rc
               : ct_group_compute(checks->group, CT_DEVICE_ADD_UP, &args, stream, err);
}

static int scale(struct ct_device_checks *checks, const struct ct_layout *layout,
                 size_t s, void *stream, struct ctrun_error *err)
{
    const struct ct_slot *slot = &layout->slots[s];
    const struct ct_piece own = ct_slice_own(layout, s);
    const struct ct_device_args args = {
        .a = begin_of(slot, &own), .c = &whole(checks)->found.by, .n = own.length};

    return ct_group_compute(checks->group, of_dtype(CT_DEVICE_SCALE_F16, slot->dtype),
                            &args, stream, err);
}

/* Each rank has the sums of its slices. */
static int add_up_ranks(struct ct_device_checks *checks, const struct ct_layout *layout,
                        void *stream, struct ctrun_error *err)
{
    struct ctrun_work *work;
    int rc = ct_group_all_reduce_start(checks->group, squares(checks), squares(checks),
                                       layout->slot_count, CTRUN_F64, CTRUN_SUM, stream,
                                       &work, err);

    return rc < 0 ? rc : ct_work_let_go(work, err);
}

int ct_checks_clip(struct ct_device_checks *checks, const struct ct_layout *layout,
                   double max_norm, void *stream, struct ctrun_error *err)
{
    const struct ct_device_args args = {.a = squares(checks),
                                        .b = &whole(checks)->found,
                                        .c = &whole(checks)->found.bad_norm,
                                        .n = layout->slot_count,
                                        .by = max_norm};
    int rc = ct_group_clear(checks->group, squares(checks),
                            layout->slot_count * sizeof(double), stream, err);

    for (size_t s = 0; rc == 0 && s < layout->slot_count; s++)
        if (layout->slots[s].is_present)
            rc = add_squares(checks, layout, s, stream, err);
    if (rc == 0 && layout->ranks > 1)
        rc = add_up_ranks(checks, layout, stream, err);
    if (rc == 0)
        rc = ct_group_compute(checks->group, CT_DEVICE_CLIP, &args, stream, err);
    for (size_t s = 0; rc == 0 && s < layout->slot_count; s++)
        if (layout->slots[s].is_present)
            rc = scale(checks, layout, s, stream, err);
    return rc;
}

int ct_checks_fetch(struct ct_device_checks *checks, void *stream,
                    struct ctrun_error *err)
{
    /* Of a step that is fetched twice, the device has forgotten bad_grad. */
    const size_t bytes = checks->has_found ? offsetof(struct ct_device_found, bad_grad)
                                           : sizeof checks->found;
    int rc = ct_group_fetch_start(checks->group, &checks->found, &whole(checks)->found,
                                  bytes, stream, &checks->found_work, err);

    checks->has_found = rc == 0;
    return rc < 0 ? rc : forget_between(checks, stream, err);
}

/* ---- Those of the others? ---------------------------------------------------------------- */

int ct_checks_digest(struct ct_device_checks *checks, const struct ctrun_param *params,
                     void *stream, uint64_t *out, struct ctrun_error *err)
{
    const size_t bytes = checks->param_count * sizeof *out;
    int rc = ct_group_clear(checks->group, digests(checks), bytes, stream, err);

    for (size_t p = 0; rc == 0 && p < checks->param_count; p++) {
        const size_t element = ctrun_dtype_size(params[p].dtype);
        const struct ct_device_args args = {.a = params[p].data,
                                            .b = digests(checks) + p,
                                            .n = ct_ddp_param_bytes(&params[p]) /
                                                 element};

        if (!params[p].is_buffer)
            rc = ct_group_compute(checks->group,
                                  element == 1   ? CT_DEVICE_DIGEST_8
                                  : element == 2 ? CT_DEVICE_DIGEST_16
                                  : element == 4 ? CT_DEVICE_DIGEST_32
                                                 : CT_DEVICE_DIGEST_64,
                                  &args, stream, err);
    }
    return rc < 0
               ? rc
               : ct_group_copy(checks->group, out, digests(checks), bytes, stream, err);
}
