/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/rank_list.h"

#include "worker_sdk/base/str.h"

void rank_list_format(char *dst, size_t size, const int *ranks, int count)
{
    size_t used = 0;

    dst[0] = '\0';
    for (int i = 0, last; i < count; i = last + 1) {
        const char *comma = used ? ", " : "";
        int length;

        for (last = i; last + 1 < count && ranks[last + 1] == ranks[last] + 1;)
            last++;
        length = last > i ? ct_format(dst + used, size - used, "%s%d-%d", comma,
                                      ranks[i], ranks[last])
                          : ct_format(dst + used, size - used, "%s%d", comma, ranks[i]);
        if (length < 0) {
            dst[0] = '\0';
            return;
        }
        used += (size_t)length;
    }
}
