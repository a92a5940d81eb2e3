/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/clip.h"

#include <math.h>

#include "worker_sdk/base/half.h"
#include "worker_sdk/ddp/slice.h"

static double read_element(const struct ct_slot *slot, size_t i)
{
    const void *at = slot->grad;

    switch (slot->dtype) {
    case CTRUN_F16: return (double)ct_float_of_f16(((const uint16_t *)at)[i]);
    case CTRUN_BF16: return (double)ct_float_of_bf16(((const uint16_t *)at)[i]);
    case CTRUN_F64: return ((const double *)at)[i];
    default: return (double)((const float *)at)[i]; /* other types have no gradient */
    }
}

static void scale(const struct ct_slot *slot, size_t first, size_t count, double by)
{
    void *at = slot->grad;

    for (size_t i = first; i < first + count; i++) {
        double value = read_element(slot, i) * by;
        if (slot->dtype == CTRUN_F16)
            ((uint16_t *)at)[i] = ct_f16_of_float((float)value);
        else if (slot->dtype == CTRUN_BF16)
            ((uint16_t *)at)[i] = ct_bf16_of_float((float)value);
        else if (slot->dtype == CTRUN_F64)
            ((double *)at)[i] = value;
        else
            ((float *)at)[i] = (float)value;
    }
}

void ct_scale(const struct ct_slot *slot, double by)
{
    scale(slot, 0, slot->bytes / ctrun_dtype_size(slot->dtype), by);
}

bool ct_is_finite(const struct ct_slot *slot)
{
    const size_t count = slot->bytes / ctrun_dtype_size(slot->dtype);
    const uint32_t *bits = (const void *)slot->grad;
    uint32_t bad = 0;

    if (slot->dtype == CTRUN_F32) { /* a loop for vectors */
        for (size_t i = 0; i < count; i++)
            bad |= (bits[i] & 0x7f800000) == 0x7f800000;
        return !bad;
    }
    for (size_t i = 0; i < count; i++)
        if (!isfinite(read_element(slot, i)))
            return false;
    return true;
}

void ct_clip_sum(const struct ct_layout *layout, double *squares)
{
    for (size_t s = 0; s < layout->slot_count; s++) {
        const struct ct_slot *slot = &layout->slots[s];
        const struct ct_piece own = ct_slice_own(layout, s);

        squares[s] = 0;
        for (size_t i = own.offset; slot->is_present && i < own.offset + own.length;
             i++)
            squares[s] += read_element(slot, i) * read_element(slot, i);
    }
}

long ct_clip(const struct ct_layout *layout, const double *squares, double max_norm,
             double *norm)
{
    double sum = 0;
    double by;

    for (size_t s = 0; s < layout->slot_count; s++)
        if (!isfinite(sum += squares[s]))
            return (long)s;
    *norm = sqrt(sum);
    by = max_norm / (*norm + 1e-6); /* torch's */
    for (size_t s = 0; by < 1 && s < layout->slot_count; s++) {
        const struct ct_piece own = ct_slice_own(layout, s);

        if (layout->slots[s].is_present)
            scale(&layout->slots[s], own.offset, own.length, by);
    }
    return -1;
}
