/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/net/port_range.h"

#include <errno.h>

#include "worker_sdk/base/str.h"

static int parse(const char *text, uint64_t *first, uint64_t *last)
{
    const char *dash = strchr(text, '-');
    char begin[8];

    if (!dash) {
        if (ct_parse_u64(text, 1, UINT16_MAX, first) < 0)
            return -EINVAL;
        *last = *first;
        return 0;
    }
    if (ct_format(begin, sizeof begin, "%.*s", (int)(dash - text), text) < 0 ||
        ct_parse_u64(begin, 1, UINT16_MAX, first) < 0 ||
        ct_parse_u64(dash + 1, *first, UINT16_MAX, last) < 0)
        return -EINVAL;
    return 0;
}

int ct_port_range_parse(const char *text, struct ct_port_range *out,
                        struct ctrun_error *err)
{
    uint64_t first, last;

    *out = (struct ct_port_range){0};
    if (!*text)
        return 0;
    if (parse(text, &first, &last) < 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "'%.40s': not FIRST-LAST with 1 <= FIRST <= LAST <= 65535",
                       text);
    *out = (struct ct_port_range){.first = (uint16_t)first, .last = (uint16_t)last};
    return 0;
}

bool ct_port_range_has(const struct ct_port_range *range, int port)
{
    return range->first == 0 || (port >= range->first && port <= range->last);
}

int ct_port_range_count(const struct ct_port_range *range)
{
    return range->last - range->first + 1;
}

uint16_t ct_port_range_at(const struct ct_port_range *range, uint32_t seed, int i)
{
    const uint32_t count = (uint32_t)ct_port_range_count(range);

    /* Knuth's multiplier spreads neighbouring process ids over the range. */
    return (uint16_t)(range->first +
                      (seed * 2654435761u % count + (uint32_t)i) % count);
}
