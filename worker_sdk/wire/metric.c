/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/metric.h"

#include <math.h>

#include "worker_sdk/base/str.h"

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}

bool ct_metric_is_name(const char *name, size_t size)
{
    const size_t length = strnlen(name, size);

    if (length == 0 || length == size || length >= CT_METRIC_NAME_MAX ||
        !is_letter(*name) || strncmp(name, "ctrun", 5) == 0 ||
        strncmp(name, "__", 2) == 0)
        return false;
    for (size_t i = 0; i < length; i++)
        if (!is_letter(name[i]) && (name[i] < '0' || name[i] > '9'))
            return false;
    return true;
}

void ct_metric_format(char text[CT_METRIC_VALUE_MAX], double value)
{
    if (!isfinite(value)) {
        (void)ct_copy(text, CT_METRIC_VALUE_MAX,
                      isnan(value) ? "NaN"
                      : value > 0  ? "+Inf"
                                   : "-Inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        (void)ct_format(text, CT_METRIC_VALUE_MAX, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

uint64_t ct_metric_to_bits(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

double ct_metric_from_bits(uint64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof value);
    return value;
}
