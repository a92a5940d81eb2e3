/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ddp/clip.h"

#include <math.h>

#include "worker_sdk/base/half.h"

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

void ct_scale(const struct ct_slot *slot, double by)
{
    size_t count = slot->bytes / ctrun_dtype_size(slot->dtype);
    void *at = slot->grad;

    for (size_t i = 0; i < count; i++) {
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

long ct_clip(const struct ct_layout *layout, double max_norm, double *norm)
{
    double squares = 0;
    double by;

    for (size_t s = 0; s < layout->slot_count; s++) {
        const struct ct_slot *slot = &layout->slots[s];
        size_t count = slot->is_present ? slot->bytes / ctrun_dtype_size(slot->dtype)
                                        : 0;
        double own = 0;
        for (size_t i = 0; i < count; i++)
            own += read_element(slot, i) * read_element(slot, i);
        squares += own;
        if (!isfinite(squares))
            return (long)s;
    }
    *norm = sqrt(squares);
    by = max_norm / (*norm + 1e-6); /* torch's */
    for (size_t s = 0; by < 1 && s < layout->slot_count; s++) {
        const struct ct_slot *slot = &layout->slots[s];
        if (slot->is_present)
            ct_scale(slot, by);
    }
    return -1;
}
