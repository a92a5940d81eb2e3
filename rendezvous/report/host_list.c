/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/report/host_list.h"

#include "worker_sdk/base/str.h"

void host_list_clear(struct host_list *list)
{
    list->count = 0;
    list->more = 0;
}

/* Index of host, or count. */
static size_t find(const struct host_list *list, const char *host)
{
    size_t i = 0;

    while (i < list->count && strcmp(list->hosts[i], host) != 0)
        i++;
    return i;
}

void host_list_add(struct host_list *list, const char *host)
{
    if (find(list, host) < list->count)
        return;
    if (list->count == HOST_LIST_MAX)
        list->more++;
    else
        (void)ct_copy(list->hosts[list->count++], CT_HOST_MAX, host); /* same size */
}

void host_list_remove(struct host_list *list, const char *host)
{
    size_t at = find(list, host);

    if (at == list->count)
        return;
    list->count--;
    memmove(list->hosts[at], list->hosts[at + 1], (list->count - at) * CT_HOST_MAX);
}

void host_list_format(const struct host_list *list, char *dst, size_t size)
{
    dst[0] = '\0';
    for (size_t i = 0; i < list->count; i++)
        (void)ct_append_item(dst, size, ", ", "%s", list->hosts[i]);
    if (list->more > 0)
        (void)ct_append(dst, size, " and %zu more", list->more); /* cut is fine */
}
