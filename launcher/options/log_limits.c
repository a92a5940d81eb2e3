/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/log_limits.h"

#include <errno.h>

#include "agent/output/rate.h"
#include "worker_sdk/base/str.h"

enum {
    KEEP_DEFAULT = 3,
    KEEP_MAX = 1000, /* files .1 to .1000: each rotation renames all */
    SIZE_MIN = 1024, /* less would rotate at almost every line */
};

/* "100M": K, M, G and T are powers of 1024, with or without an i or a B after them. */
static int parse_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    const size_t digits = strspn(text, "0123456789");
    const char *unit = text + digits;
    const char *which;
    char number[24];
    uint64_t value;
    int shift = 0;

    if (digits == 0 ||
        ct_format(number, sizeof number, "%.*s", (int)digits, text) < 0 ||
        ct_parse_u64(number, 0, UINT64_MAX, &value) < 0)
        return -EINVAL;
    if (*unit && (which = strchr(units, *unit >= 'a' ? *unit - 'a' + 'A' : *unit))) {
        shift = 10 * (int)(which - units + 1);
        unit++;
        unit += *unit == 'i';
    }
    unit += *unit == 'B' || *unit == 'b';
    if (*unit || value > UINT64_MAX >> shift)
        return -EINVAL;
    *out = value << shift;
    return 0;
}

int log_limits_parse(const struct options *options, uint64_t *max_bytes, int *keep,
                     struct ctrun_error *err)
{
    const char *size = option_text(options, OPTION_LOG_MAX_SIZE);
    const bool has_keep = option_has_text(options, OPTION_LOG_KEEP);
    const int64_t number = options->values[OPTION_LOG_KEEP].integer;

    *max_bytes = 0;
    *keep = has_keep ? (int)number : KEEP_DEFAULT;
    if (has_keep && (number < 0 || number > KEEP_MAX))
        return ct_fail(err, CTRUN_E_USAGE, "--log-keep=%lld: 0 to %d files can be kept",
                       (long long)number, KEEP_MAX);
    if (!option_has_text(options, OPTION_LOG_MAX_SIZE))
        return has_keep ? ct_fail(err, CTRUN_E_USAGE,
                                  "--log-keep=%lld: files are renamed only when they "
                                  "have a size limit: pass --log-max-size too",
                                  (long long)number)
                        : 0;
    if (parse_size(size, max_bytes) < 0 || *max_bytes < SIZE_MIN)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--log-max-size=%s: not a size of %d bytes or more, as 500K, "
                       "100M or 2G",
                       size, SIZE_MIN);
    return 0;
}

int log_limits_parse_rate(const struct options *options, uint64_t *bytes_per_s,
                          struct ctrun_error *err)
{
    const char *text = option_text(options, OPTION_LOG_RATE_LIMIT);

    *bytes_per_s = 0;
    if (!option_has_text(options, OPTION_LOG_RATE_LIMIT))
        return 0;
    if (parse_size(text, bytes_per_s) < 0 ||
        (*bytes_per_s > 0 && *bytes_per_s < SIZE_MIN) ||
        *bytes_per_s > 1ull << RATE_SHIFT_MAX)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--log-rate-limit=%s: not a size of %d bytes or more a second, as "
            "64K or 2M; 0: no limit",
            text, SIZE_MIN);
    return 0;
}
