/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/nproc_list.h"

#include <ctype.h>
#include <errno.h>

#include "launcher/options/nnodes.h"
#include "worker_sdk/base/str.h"

bool nproc_list_is(const char *text)
{
    return strchr(text, ',') || (isdigit((unsigned char)*text) && strchr(text, 'x'));
}

static int parse_number(const char *text, size_t length, int max, int *out)
{
    char copy[24];
    int64_t value;

    if (ct_format(copy, sizeof copy, "%.*s", (int)length, text) < 0 ||
        ct_parse_python_int(copy, &value) < 0 || value < 1 || value > max)
        return -EINVAL;
    *out = (int)value;
    return 0;
}

static int parse_item(const char *item, size_t length, int *workers, int *nodes)
{
    const char *times = memchr(item, 'x', length);
    const size_t first = times ? (size_t)(times - item) : length;

    *nodes = 1;
    if (parse_number(item, first, NPROC_MAX, workers) < 0)
        return -EINVAL;
    return times ? parse_number(times + 1, length - first - 1, NNODES_MAX, nodes) : 0;
}

int nproc_list_read(const char *text, int index, int *workers, struct ctrun_error *err)
{
    const char *rest = text;
    size_t length;
    int count = 0;

    *workers = 0;
    for (const char *item; (item = ct_next_field(&rest, ',', &length));) {
        int each;
        int nodes;

        if (parse_item(item, length, &each, &nodes) < 0)
            return ct_fail(err, -EINVAL,
                           "--nproc-per-node=%s: '%.*s' is neither N, 1 to %d workers "
                           "on a node, nor NxK, N on each of K nodes",
                           text, (int)length, item, NPROC_MAX);
        if (nodes > NNODES_MAX - count)
            return ct_fail(err, -EINVAL, "--nproc-per-node=%s: more than %d nodes",
                           text, NNODES_MAX);
        if (index >= count && index - count < nodes)
            *workers = each;
        count += nodes;
    }
    return count;
}

int nproc_list_check(const char *text, int listed, int max, int total,
                     struct ctrun_error *err)
{
    if (listed == max || listed == total)
        return 0;
    return ct_fail(err, CTRUN_E_USAGE,
                   "--nproc-per-node=%s: is for %d node%s, and the run has %d", text,
                   listed, listed == 1 ? "" : "s", total ? total : max);
}
