/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/rank_list.h"

#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/str.h"

enum {
    ADD_RANKS_MAX = 1024, /* to longer lists nothing is added */
    ADD_BYTES_MAX = 64
};

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

bool rank_list_add(char *text, size_t size, int rank)
{
    int ranks[ADD_RANKS_MAX], count = 0, at;
    char longer[ADD_BYTES_MAX], *end;

    for (const char *item = text; *item; item = end + strspn(end, ", ")) {
        const long first = strtol(item, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;

        if (end == item || last - first >= ADD_RANKS_MAX - 1 - count ||
            (first <= rank && rank <= last))
            return false;
        for (long i = first; i <= last; i++)
            ranks[count++] = (int)i;
    }
    for (at = count++; at > 0 && ranks[at - 1] > rank; at--)
        ranks[at] = ranks[at - 1];
    ranks[at] = rank;
    rank_list_format(longer, sizeof longer, ranks, count);
    return *longer && strlen(longer) < size && ct_copy(text, size, longer) >= 0;
}
