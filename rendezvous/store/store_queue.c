/* SPDX-License-Identifier: Apache-2.0 */
/* Queues of torch >= 2.8: a name may have queue elements independent of its value. First in, first
 * out; an empty queue does not exist. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/store_private.h"
#include "worker_sdk/base/alloc.h"

int store_query_queue_push(struct store_client *client,
                           const struct ct_tcpstore_request *request)
{
    struct store *store = client->store;
    size_t bytes = sizeof(struct store_item) + request->value.length;
    struct store_entry *entry;
    struct store_item *item;
    int rc;

    if ((rc = store_check_room(store, bytes)) < 0)
        return rc;
    if (!(item = ct_realloc_array(NULL, bytes, 1)))
        return -ENOMEM;
    if (!(entry = store_find_or_create(store, request->key))) {
        free(item);
        return -ENOMEM;
    }
    item->next = NULL;
    item->length = request->value.length;
    if (item->length)
        memcpy(item->data, request->value.data, item->length);
    if (entry->queue_tail)
        entry->queue_tail->next = item;
    else
        entry->queue_head = item;
    entry->queue_tail = item;
    entry->queue_length++;
    store->data_bytes += bytes;
    store_wake_one(store, entry);
    return 0;
}

static void remove_first(struct store *store, struct store_entry *entry)
{
    struct store_item *item = entry->queue_head;

    if (!(entry->queue_head = item->next))
        entry->queue_tail = NULL;
    entry->queue_length--;
    store->data_bytes -= sizeof *item + item->length;
    free(item);
    store_entry_tidy(store, entry);
}

/* The length before the pop, then the element unless that was 0. */
int store_query_queue_pop(struct store_client *client,
                          const struct ct_tcpstore_request *request)
{
    struct store_entry *entry = store_find(client->store, request->key);
    const struct store_item *item = entry ? entry->queue_head : NULL;
    uint8_t *at;

    if (!item)
        return store_reply_i64(client, 0);
    if (!(at = store_reply(client, 8 + 8 + item->length)))
        return client->error;
    at = ct_tcpstore_put_u64(at, entry->queue_length);
    at = ct_tcpstore_put_u64(at, item->length);
    if (item->length)
        memcpy(at, item->data, item->length);
    remove_first(client->store, entry);
    return 0;
}

int store_query_queue_len(struct store_client *client,
                          const struct ct_tcpstore_request *request)
{
    const struct store_entry *entry = store_find(client->store, request->key);

    return store_reply_i64(client, entry ? (int64_t)entry->queue_length : 0);
}
