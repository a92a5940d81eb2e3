/* SPDX-License-Identifier: Apache-2.0 */
/* Queries on keys. Where PyTorch's servers differ we follow the libuv one, except that
 * a failed COMPARE_SET wakes nobody and MULTI_SET is all or nothing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/store_private.h"
#include "worker_sdk/base/alloc.h"

int store_query_set(struct store_client *client,
                    const struct ct_tcpstore_request *request)
{
    struct store *store = client->store;
    struct store_entry *entry;
    int rc;

    if ((rc = store_check_room(store, request->value.length)) < 0)
        return rc;
    if (!(entry = store_find_or_create(store, request->key)))
        return -ENOMEM;
    if ((rc = store_entry_set(store, entry, request->value.data,
                              request->value.length)) < 0) {
        store_entry_tidy(store, entry);
        return rc;
    }
    store_wake_all(store, entry);
    return 0;
}

int store_query_append(struct store_client *client,
                       const struct ct_tcpstore_request *request)
{
    struct store *store = client->store;
    struct store_entry *entry = store_find(store, request->key);
    int rc;

    if (entry && entry->length > STORE_VALUE_MAX_BYTES - request->value.length)
        return -EMSGSIZE;
    /* A value that grows doubles its buffer. */
    if ((rc = store_check_room(store, request->value.length +
                                          (entry ? entry->length : 0))) < 0)
        return rc;
    if (!entry && !(entry = store_find_or_create(store, request->key)))
        return -ENOMEM;
    if ((rc = store_entry_append(store, entry, request->value.data,
                                 request->value.length)) < 0) {
        store_entry_tidy(store, entry);
        return rc;
    }
    store_wake_all(store, entry);
    return 0;
}

static bool is_equal(const struct store_entry *entry, struct ct_tcpstore_blob blob)
{
    return entry->length == blob.length &&
           (!blob.length || memcmp(entry->value, blob.data, blob.length) == 0);
}

/* absent, expected empty      create      reply desired
 * absent, expected not empty  nothing     reply expected, as PyTorch does
 * equal                       replace     reply desired
 * different                   nothing     reply the value */
int store_query_compare_set(struct store_client *client,
                            const struct ct_tcpstore_request *request)
{
    struct store_entry *entry = store_find(client->store, request->key);
    struct ct_tcpstore_request set = {.key = request->key, .value = request->desired};
    int rc;

    if ((rc = store_group_join(client, request->key)) < 0)
        return rc;
    if (entry && entry->has_value && !is_equal(entry, request->value))
        return store_reply_blob(client, entry->value, entry->length);
    if ((!entry || !entry->has_value) && request->value.length)
        return store_reply_blob(client, request->value.data, request->value.length);
    if ((rc = store_query_set(client, &set)) < 0)
        return rc;
    return store_reply_blob(client, request->desired.data, request->desired.length);
}

/* A missing key (clients WAIT first, so it was deleted in between) is read as empty. */
int store_query_get(struct store_client *client,
                    const struct ct_tcpstore_request *request)
{
    const struct store_entry *entry = store_find(client->store, request->key);

    return store_reply_blob(client, entry ? entry->value : NULL,
                            entry ? entry->length : 0);
}

int store_query_multi_get(struct store_client *client,
                          const struct ct_tcpstore_request *request)
{
    const uint8_t *cursor = request->list;
    int rc;

    for (size_t i = 0; i < request->count; i++) {
        struct ct_tcpstore_request get = {.key = ct_tcpstore_next(&cursor)};

        if ((rc = store_query_get(client, &get)) < 0)
            return rc;
    }
    return 0;
}

/* True for the key to which torch's TCPStore adds 1 when it is created with a world_size; the keys
 * of programs begin with '/'. */
static bool counts_ranks(struct ct_tcpstore_blob key)
{
    static const char name[] = "init/";

    return key.length == sizeof name - 1 && memcmp(key.data, name, key.length) == 0;
}

int store_query_add(struct store_client *client,
                    const struct ct_tcpstore_request *request)
{
    struct store *store = client->store;
    struct store_entry *entry;
    int64_t sum;
    int rc;

    if ((rc = store_check_room(store, 0)) < 0)
        return rc;
    if (!(entry = store_find_or_create(store, request->key)))
        return -ENOMEM;
    if ((rc = store_entry_add(store, entry, request->number, &sum)) < 0) {
        store_entry_tidy(store, entry);
        return rc;
    }
    if (sum > 0 && counts_ranks(request->key))
        store->stats.ranks = (uint64_t)sum;
    store_wake_all(store, entry);
    return store_reply_i64(client, sum);
}

int store_query_delete(struct store_client *client,
                       const struct ct_tcpstore_request *request)
{
    struct store_entry *entry = store_find(client->store, request->key);

    if (!entry || !entry->has_value)
        return store_reply_i64(client, 0);
    store_entry_clear(client->store, entry);
    return store_reply_i64(client, 1);
}

int store_query_num_keys(struct store_client *client,
                         const struct ct_tcpstore_request *request)
{
    (void)request;
    return store_reply_i64(client, (int64_t)client->store->stats.keys);
}

int store_query_list_keys(struct store_client *client,
                          const struct ct_tcpstore_request *request)
{
    struct store *store = client->store;
    size_t keys = store->stats.keys;
    uint8_t *at = store_reply(client, 8 + 8 * keys + store->key_bytes);

    (void)request;
    if (!at)
        return client->error;
    at = ct_tcpstore_put_u64(at, keys);
    ct_list_for_each(const struct store_entry, entry, &store->entries, link) {
        if (!entry->has_value || store_group_has_dropped(entry))
            continue;
        at = ct_tcpstore_put_u64(at, entry->node.key_length);
        memcpy(at, entry->key, entry->node.key_length);
        at += entry->node.key_length;
    }
    return 0;
}

int store_query_ping(struct store_client *client,
                     const struct ct_tcpstore_request *request)
{
    uint8_t *at = store_reply(client, 4);

    if (!at)
        return client->error;
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(request->nonce >> 8 * i);
    return 0;
}

/* Accepted, but never notified: torch 1.13 has no Python call for it. Its own server sends
 * notifications also to a later client with the same descriptor. */
int store_query_watch_key(struct store_client *client,
                          const struct ct_tcpstore_request *request)
{
    (void)request;
    return store_reply_u8(client, CT_TCPSTORE_WATCHING);
}

/* ---- MULTI_SET: everything is allocated before anything is changed ----------------------- */

struct pending {
    struct store_entry *entry; /* pinned */
    uint8_t *value;            /* owned until it is taken */
    size_t length;
};

static int prepare(struct store *store, struct pending *pending, const uint8_t **cursor)
{
    struct ct_tcpstore_blob key = ct_tcpstore_next(cursor);
    struct ct_tcpstore_blob value = ct_tcpstore_next(cursor);

    if (!(pending->entry = store_find_or_create(store, key)))
        return -ENOMEM;
    pending->entry->pins++;
    pending->length = value.length;
    if (!value.length)
        return 0;
    if (!(pending->value = ct_realloc_array(NULL, value.length, 1)))
        return -ENOMEM;
    memcpy(pending->value, value.data, value.length);
    return 0;
}

int store_query_multi_set(struct store_client *client,
                          const struct ct_tcpstore_request *request)
{
    struct store *store = client->store;
    const uint8_t *cursor = request->list;
    struct pending *pending;
    size_t bytes = 0;
    int rc;

    for (size_t i = 0; i < 2 * request->count; i++)
        bytes += ct_tcpstore_next(&cursor).length;
    cursor = request->list;
    if ((rc = store_check_room(store, bytes)) < 0)
        return rc;
    if (!(pending = ct_zalloc_array(request->count, sizeof *pending)))
        return -ENOMEM;
    for (size_t i = 0; i < request->count && rc == 0; i++)
        rc = prepare(store, &pending[i], &cursor);
    for (size_t i = 0; i < request->count && rc == 0; i++) {
        store_entry_take(store, pending[i].entry, pending[i].value, pending[i].length);
        pending[i].value = NULL;
    }
    for (size_t i = 0; i < request->count; i++) {
        struct store_entry *entry = pending[i].entry;

        free(pending[i].value);
        if (!entry)
            continue;
        if (rc == 0)
            store_wake_all(store, entry);
        if (--entry->pins == 0)
            store_entry_tidy(store, entry);
    }
    free(pending);
    return rc;
}
