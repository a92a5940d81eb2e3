/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/str_list.h"

#include <stdlib.h>

#include "worker_sdk/base/alloc.h"

size_t ct_str_list_count(char *const *list)
{
    size_t count = 0;

    while (list && list[count])
        count++;
    return count;
}

char **ct_str_list_copy(char *const *list)
{
    const size_t count = ct_str_list_count(list);
    char **copy = ct_zalloc_array(count + 1, sizeof *copy);

    for (size_t i = 0; copy && i < count; i++)
        if (!(copy[i] = ct_strdup(list[i]))) {
            ct_str_list_free(copy);
            return NULL;
        }
    return copy;
}

void ct_str_list_free(char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}
