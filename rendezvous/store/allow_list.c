/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/store/allow_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, 16);
}

static int reserve(struct allow_list *list, size_t count)
{
    size_t capacity = list->capacity ? list->capacity : 64;
    uint8_t(*keys)[16];

    if (count > ALLOW_LIST_MAX - list->count)
        return -ENOBUFS;
    while (capacity < list->count + count)
        capacity *= 2;
    if (capacity == list->capacity)
        return 0;
    if (!(keys = ct_zalloc_array(capacity, sizeof *keys)))
        return -ENOMEM;
    if (list->count > 0)
        memcpy(keys, list->keys, list->count * sizeof *keys);
    free(list->keys);
    list->keys = keys;
    list->capacity = capacity;
    return 0;
}

int allow_list_add(struct allow_list *list, const uint8_t (*keys)[16], size_t count)
{
    int rc;

    if (list->is_sealed)
        allow_list_deinit(list);
    if ((rc = reserve(list, count)) < 0)
        return rc;
    if (count > 0)
        memcpy(list->keys + list->count, keys, count * sizeof *keys);
    list->count += count;
    return 0;
}

void allow_list_seal(struct allow_list *list)
{
    if (list->count > 1)
        qsort(list->keys, list->count, sizeof *list->keys, compare);
    list->is_sealed = true;
}

bool allow_list_has(const struct allow_list *list, const struct ct_addr *remote,
                    const struct ct_addr *local)
{
    uint8_t key[16];

    if (ct_addr_is_loopback(remote) || ct_addr_is_same_host(remote, local))
        return true;
    ct_addr_key(key, remote);
    return list->is_sealed && list->count > 0 &&
           bsearch(key, list->keys, list->count, sizeof *list->keys, compare);
}

void allow_list_deinit(struct allow_list *list)
{
    free(list->keys);
    *list = (struct allow_list){0};
}
