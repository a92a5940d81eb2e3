/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/rank_list.h"

#include "worker_sdk/base/str.h"

void rank_list_format(char *dst, size_t size, const int *ranks, int count)
{
    dst[0] = '\0';
    for (int i = 0, last; i < count; i = last + 1) {
        for (last = i; last + 1 < count && ranks[last + 1] == ranks[last] + 1;)
            last++;
        if ((last > i ? ct_append_item(dst, size, ", ", "%d-%d", ranks[i], ranks[last])
                      : ct_append_item(dst, size, ", ", "%d", ranks[i])) < 0) {
            dst[0] = '\0';
            return;
        }
    }
}
