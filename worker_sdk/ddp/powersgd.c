/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/powersgd.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/comm/comm.h"

/* ---- Matrices, row by row ---------------------------------------------------------------- */

/* p (n, k) = a (n, m) q (m, k) */
static void multiply(const struct ct_low_rank *shape, const float *a, const float *q,
                     float *p)
{
    const size_t k = shape->k;

    memset(p, 0, shape->n * k * sizeof *p);
    for (size_t i = 0; i < shape->n; i++)
        for (size_t j = 0; j < shape->m; j++)
            for (size_t c = 0; c < k; c++)
                p[i * k + c] += a[i * shape->m + j] * q[j * k + c];
}

/* q (m, k) = a' p, where a is (n, m) and p is (n, k) */
static void multiply_transposed(const struct ct_low_rank *shape, const float *a,
                                const float *p, float *q)
{
    const size_t k = shape->k;

    memset(q, 0, shape->m * k * sizeof *q);
    for (size_t i = 0; i < shape->n; i++)
        for (size_t j = 0; j < shape->m; j++)
            for (size_t c = 0; c < k; c++)
                q[j * k + c] += a[i * shape->m + j] * p[i * k + c];
}

/* a (n, m) = p q' */
static void decompress(const struct ct_low_rank *shape, const float *p, const float *q,
                       float *a)
{
    const size_t k = shape->k;

    for (size_t i = 0; i < shape->n; i++) {
        for (size_t j = 0; j < shape->m; j++) {
            float sum = 0;

            for (size_t c = 0; c < k; c++)
                sum += p[i * k + c] * q[j * k + c];
            a[i * shape->m + j] = sum;
        }
    }
}

/* The dot product of columns c and d of x. It is summed in as many parts as a device has threads
 * for it, then in pairs of parts, in the same order as on the device. */
static float multiply_columns(const float *x, size_t rows, size_t k, size_t c, size_t d)
{
    float parts[CT_DEVICE_BLOCK] = {0};

    for (size_t i = 0; i < rows; i++)
        parts[i % CT_DEVICE_BLOCK] += x[i * k + c] * x[i * k + d];
    for (size_t half = CT_DEVICE_BLOCK / 2; half > 0; half /= 2)
        for (size_t t = 0; t < half; t++)
            parts[t] += parts[t + half];
    return parts[0];
}

/* Gram-Schmidt over the columns of x (rows, k). A column of zeros stays zero. */
static void make_orthonormal(float *x, size_t rows, size_t k, float epsilon)
{
    for (size_t c = 0; c < k; c++) {
        const float norm = sqrtf(multiply_columns(x, rows, k, c, c)) + epsilon;

        for (size_t i = 0; i < rows && norm != 0; i++)
            x[i * k + c] /= norm;
        for (size_t d = c + 1; d < k; d++) {
            const float dot = multiply_columns(x, rows, k, c, d);

            for (size_t i = 0; i < rows; i++)
                x[i * k + d] -= dot * x[i * k + c];
        }
    }
}

/* Twelve uniform numbers added up: nearly normal, and the same bits on every machine. */
static float draw_normal(uint64_t *state)
{
    double sum = -6;

    for (int i = 0; i < 12; i++) {
        uint64_t z = *state +=
            0x9e3779b97f4a7c15u; /* splitmix64, by Sebastiano Vigna */

        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        sum += (double)((z ^ z >> 31) >> 11) * 0x1p-53;
    }
    return (float)sum;
}

/* ---- Setting up -------------------------------------------------------------------------- */

static int options_check(const struct ctrun_powersgd_options *options,
                         struct ctrun_error *err)
{
    if (options->rank < 1)
        return ct_fail(err, -EINVAL, "ddp: powersgd: rank is %d, but must be 1 or more",
                       options->rank);
    if (options->start_step < 2)
        return ct_fail(err, -EINVAL,
                       "ddp: powersgd: start_step is %llu, but must be 2 or more: "
                       "the second step lays the buckets out anew",
                       (unsigned long long)options->start_step);
    if (!(options->min_compression > 0))
        return ct_fail(err, -EINVAL,
                       "ddp: powersgd: min_compression is %g, but must be more than 0",
                       options->min_compression);
    if (!(options->epsilon >= 0))
        return ct_fail(err, -EINVAL,
                       "ddp: powersgd: epsilon is %g, but must be 0 or more",
                       options->epsilon);
    return 0;
}

static size_t at_most(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* As in torch's hook: compressed only if (n + m) k numbers times min_compression are fewer than
 * the n m of the gradient. */
static struct ct_low_rank shape_of(const struct ctrun_param *param,
                                   const struct ctrun_powersgd_options *options)
{
    struct ct_low_rank shape = {.n = 1, .m = 1};

    for (int i = 0; i < param->dims; i++)
        *(i == 0 ? &shape.n : &shape.m) *= (size_t)param->sizes[i];
    shape.k = param->dims < 2
                  ? 0
                  : at_most(at_most(shape.n, shape.m), (size_t)options->rank);
    if (!((double)((shape.n + shape.m) * shape.k) * options->min_compression <
          (double)(shape.n * shape.m)))
        shape.k = 0;
    return shape;
}

/* Elements of what travels first, and second. */
size_t ct_low_rank_p(const struct ct_low_rank *shape)
{
    return shape->n * (shape->k ? shape->k : shape->m);
}

size_t ct_low_rank_q(const struct ct_low_rank *shape)
{
    return shape->m * shape->k;
}

int ct_powersgd_init(struct ct_powersgd *powersgd, struct ctrun_group *group,
                     const struct ct_layout *layout, const struct ctrun_param *params,
                     const struct ctrun_powersgd_options *options,
                     struct ctrun_error *err)
{
    size_t p = 1, q = 1; /* the flag; a length that is not 0 */
    void *memory;
    int rc;

    if ((rc = options_check(options, err)) < 0)
        return rc;
    *powersgd = (struct ct_powersgd){.options = *options,
                                     .group = group,
                                     .slot_count = layout->slot_count,
                                     .step = UINT64_MAX,
                                     .bucket = SIZE_MAX};
    powersgd->slots = ct_zalloc_array(layout->slot_count, sizeof *powersgd->slots);
    if (!powersgd->slots)
        return ct_fail(err, -ENOMEM, "ddp: powersgd: out of memory");
    for (size_t s = 0; s < layout->slot_count; s++) {
        struct ct_low_rank *shape = &powersgd->slots[s];

        if (layout->slots[s].dtype != CTRUN_F32)
            continue;
        *shape = shape_of(&params[layout->slots[s].param], options);
        p += ct_low_rank_p(shape);
        q += ct_low_rank_q(shape);
        if (shape->k && !options->no_error_feedback && !ct_group_is_device(group) &&
            !(shape->error = ct_zalloc_array(shape->n * shape->m,
                                             sizeof *shape->error)))
            return ct_fail(err, -ENOMEM, "ddp: powersgd: out of memory");
    }
    if ((rc = ctrun_group_alloc(group, p * sizeof(float), &memory, err)) < 0)
        return rc;
    powersgd->p = memory;
    if ((rc = ctrun_group_alloc(group, q * sizeof(float), &memory, err)) < 0)
        return rc;
    powersgd->q = memory;
    return 0;
}

void ct_powersgd_deinit(struct ct_powersgd *powersgd)
{
    void *const memory[] = {powersgd->p, powersgd->q, powersgd->errors,
                            powersgd->words};

    for (size_t s = 0; powersgd->slots && s < powersgd->slot_count; s++)
        if (!powersgd->errors)
            free(powersgd->slots[s].error);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            (void)ctrun_group_free(powersgd->group, memory[i], NULL);
    free(powersgd->slots);
    *powersgd = (struct ct_powersgd){.slots = NULL};
}

/* ---- A bucket ---------------------------------------------------------------------------- */

/* Gives the members of each bucket their final places, side by side: one all-reduce takes a whole
 * bucket. */
static void place(struct ct_powersgd *powersgd, const struct ct_layout *layout)
{
    size_t p = 0, q = 0;

    for (size_t i = 0; i < layout->slot_count; i++) {
        struct ct_low_rank *shape = &powersgd->slots[layout->plan.members[i]];

        shape->p = p;
        shape->q = q;
        p += ct_low_rank_p(shape);
        q += ct_low_rank_q(shape);
    }
    powersgd->is_placed = true;
}

/* The same numbers on all ranks without a message: made from the seed, slot and step, which all
 * ranks have in common. */
uint64_t ct_powersgd_seed(const struct ct_powersgd *powersgd, size_t s)
{
    return powersgd->options.seed + 0x100000001b3u * (s + 1) + (powersgd->step << 40);
}

static void draw(struct ct_powersgd *powersgd, size_t s)
{
    const struct ct_low_rank *shape = &powersgd->slots[s];
    uint64_t state = ct_powersgd_seed(powersgd, s);
    float *q = powersgd->q + shape->q;

    for (size_t i = 0; i < ct_low_rank_q(shape); i++)
        q[i] = draw_normal(&state);
    make_orthonormal(q, shape->m, shape->k, 0);
}

static bool are_finite(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(x[i]))
            return false;
    return true;
}

/* Without this a NaN of one step would be in all steps after it. */
static bool forget_nan(struct ct_low_rank *shape, const float *q)
{
    if (shape->error && !are_finite(shape->error, shape->n * shape->m))
        memset(shape->error, 0, shape->n * shape->m * sizeof *shape->error);
    return !are_finite(q, ct_low_rank_q(shape)); /* the same on all ranks */
}

/* Writes to p the gradient's P, or the whole gradient. */
static void compress(struct ct_powersgd *powersgd, struct ct_slot *slot, size_t s)
{
    struct ct_low_rank *shape = &powersgd->slots[s];
    const bool is_first = powersgd->step == powersgd->options.start_step;
    float *grad = (void *)slot->grad, *q = powersgd->q + shape->q;
    bool has_nan;

    if (!shape->k) {
        memcpy(powersgd->p + shape->p, grad, slot->bytes);
        return;
    }
    has_nan = forget_nan(shape, q);
    for (size_t i = 0; shape->error && i < shape->n * shape->m; i++)
        shape->error[i] = grad[i] += shape->error[i];
    if (has_nan || is_first || powersgd->options.no_warm_start)
        draw(powersgd, s);
    else
        make_orthonormal(q, shape->m, shape->k, (float)powersgd->options.epsilon);
    multiply(shape, grad, q, powersgd->p + shape->p);
}

bool ct_powersgd_begin(struct ct_powersgd *powersgd, const struct ct_layout *layout,
                       size_t b, enum ctrun_op op)
{
    /* buckets start in ascending order: a bucket not after the last one begins a step */
    powersgd->step += b <= powersgd->bucket;
    powersgd->bucket = b;
    powersgd->is_sum = op == CTRUN_SUM;
    if (powersgd->step < powersgd->options.start_step)
        return false;
    if (!powersgd->is_placed)
        place(powersgd, layout);
    return true;
}

int ct_powersgd_start(struct ct_powersgd *powersgd, struct ct_layout *layout, size_t b,
                      struct ctrun_error *err)
{
    const struct ct_bucket_plan *plan = &layout->plan;
    struct ct_bucket *bucket = &layout->buckets[b];
    size_t length = 0, first = plan->members[plan->starts[b]];

    for (size_t i = plan->starts[b]; i < plan->starts[b + 1]; i++) {
        compress(powersgd, &layout->slots[plan->members[i]], plan->members[i]);
        length += ct_low_rank_p(&powersgd->slots[plan->members[i]]);
    }
    if (b == layout->bucket_count - 1 && !layout->is_callers)
        memcpy(powersgd->p + powersgd->slots[first].p + length++, layout->flag,
               sizeof(float));
    bucket->is_hooked = true;
    return ct_group_all_reduce_start(powersgd->group,
                                     powersgd->p + powersgd->slots[first].p,
                                     powersgd->p + powersgd->slots[first].p, length,
                                     CTRUN_F32, CTRUN_SUM, NULL, &bucket->work, err);
}

static void scale(const struct ct_powersgd *powersgd, float *x, size_t count)
{
    const float ranks = (float)ctrun_group_size(powersgd->group);

    for (size_t i = 0; !powersgd->is_sum && i < count; i++)
        x[i] /= ranks;
}

static void take_back(struct ct_powersgd *powersgd, const struct ct_slot *slot,
                      size_t s)
{
    const struct ct_low_rank *shape = &powersgd->slots[s];
    float *grad = (void *)slot->grad, *p = powersgd->p + shape->p;

    if (!shape->k) {
        memcpy(grad, p, slot->bytes);
        scale(powersgd, grad, shape->n * shape->m);
        return;
    }
    scale(powersgd, powersgd->q + shape->q, ct_low_rank_q(shape));
    decompress(shape, p, powersgd->q + shape->q, grad);
    for (size_t i = 0; shape->error && i < shape->n * shape->m; i++)
        shape->error[i] -= grad[i];
}

int ct_powersgd_finish(struct ct_powersgd *powersgd, const struct ct_layout *layout,
                       size_t b, struct ctrun_error *err)
{
    const struct ct_bucket_plan *plan = &layout->plan;
    const struct ct_low_rank *first = &powersgd->slots[plan->members[plan->starts[b]]];
    size_t p = 0, q = 0;
    int rc = 0;

    for (size_t i = plan->starts[b]; i < plan->starts[b + 1]; i++) {
        const struct ct_low_rank *shape = &powersgd->slots[plan->members[i]];

        if (shape->k) {
            make_orthonormal(powersgd->p + shape->p, shape->n, shape->k,
                             (float)powersgd->options.epsilon);
            multiply_transposed(shape, (void *)layout->slots[plan->members[i]].grad,
                                powersgd->p + shape->p, powersgd->q + shape->q);
        }
        p += ct_low_rank_p(shape);
        q += ct_low_rank_q(shape);
    }
    if (q > 0)
        rc = ctrun_all_reduce(powersgd->group, powersgd->q + first->q,
                              powersgd->q + first->q, q, CTRUN_F32, CTRUN_SUM, NULL,
                              err);
    for (size_t i = plan->starts[b]; rc == 0 && i < plan->starts[b + 1]; i++)
        take_back(powersgd, &layout->slots[plan->members[i]], plan->members[i]);
    if (rc == 0 && b == layout->bucket_count - 1 && !layout->is_callers)
        memcpy(layout->flag, powersgd->p + first->p + p, sizeof(float));
    return rc;
}
