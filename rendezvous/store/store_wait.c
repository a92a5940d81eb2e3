/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that wait for names, and their release when a name is set.
 *
 * A WAIT adds one struct store_wait for each missing name of its list to the entry of that name.
 * When the name is set, the struct is removed for good, so a name that is set and deleted again
 * still counts: a wait ends when each of its names was set once. A new wait is queued after all
 * others and leaves the queue only by its release, so waiters of a queue are served strictly in
 * order of arrival. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/store_private.h"
#include "worker_sdk/base/alloc.h"

void store_wait_drop(struct store_client *client)
{
    struct store_wait *waits = client->waits;

    if (!waits)
        return;
    for (size_t i = 0; i < client->wait_count; i++) {
        if (ct_list_is_empty(&waits[i].link))
            continue;
        ct_list_remove(&waits[i].link);
        store_entry_tidy(client->store, waits[i].entry);
    }
    client->store->data_bytes -= client->wait_count * sizeof *waits;
    client->store->stats.waiting--;
    if (waits != &client->one_wait)
        free(waits);
    client->waits = NULL;
    client->wait_count = client->wait_left = 0;
}

/* All names were set. Room for the byte was reserved when the wait began. */
static void release(struct store_client *client)
{
    int rc;

    store_wait_drop(client);
    rc = store_reply_u8(client, CT_TCPSTORE_READY);
    if (rc == 0 && client != client->store->running && client->on_output)
        client->on_output(client->context);
}

/* Removes the first waiter of the name. True if this released its client. */
static bool wake_first(struct store_entry *entry)
{
    struct store_wait *wait = ct_list_entry(entry->waits.next, struct store_wait, link);
    struct store_client *client = wait->client;

    ct_list_remove(&wait->link);
    if (--client->wait_left)
        return false;
    release(client);
    return true;
}

void store_wake_all(struct store *store, struct store_entry *entry)
{
    (void)store;
    while (!ct_list_is_empty(&entry->waits))
        (void)wake_first(entry);
}

void store_wake_one(struct store *store, struct store_entry *entry)
{
    (void)store;
    while (!ct_list_is_empty(&entry->waits) && !wake_first(entry))
        ;
}

/* Prepares room for `count` missing names, and for the byte that will release them. */
static int begin(struct store_client *client, size_t count)
{
    struct store *store = client->store;
    uint8_t *at;
    int rc;

    if ((rc = store_check_room(store, count * sizeof *client->waits)) < 0 ||
        (rc = ct_buf_reserve(&client->out, 1, &at)) < 0)
        return rc;
    client->waits = count == 1 ? &client->one_wait
                               : ct_zalloc_array(count, sizeof *client->waits);
    if (!client->waits)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        ct_list_init(&client->waits[i].link);
    client->wait_count = client->wait_left = count;
    store->data_bytes += count * sizeof *client->waits;
    store->stats.waiting++;
    return 0;
}

static void add(struct store_client *client, size_t i, struct store_entry *entry)
{
    client->waits[i].client = client;
    client->waits[i].entry = entry;
    ct_list_add(&entry->waits, &client->waits[i].link);
}

static size_t count_missing(struct store *store,
                            const struct ct_tcpstore_request *request)
{
    const uint8_t *cursor = request->list;
    size_t missing = 0;

    for (size_t i = 0; i < request->count; i++)
        missing += !store_entry_exists(store_find(store, ct_tcpstore_next(&cursor)));
    return missing;
}

int store_query_check(struct store_client *client,
                      const struct ct_tcpstore_request *request)
{
    return store_reply_u8(client, count_missing(client->store, request)
                                      ? CT_TCPSTORE_NOT_READY
                                      : CT_TCPSTORE_READY);
}

/* Replies at once if no name is missing; else when the last missing name was set. */
int store_query_wait(struct store_client *client,
                     const struct ct_tcpstore_request *request)
{
    const uint8_t *cursor = request->list;
    size_t missing;
    size_t added = 0;
    int rc;

    store_wait_drop(client); /* no PyTorch client waits twice; the new wait counts */
    if (!(missing = count_missing(client->store, request)))
        return store_reply_u8(client, CT_TCPSTORE_READY);
    if ((rc = begin(client, missing)) < 0)
        return rc;
    while (added < missing) {
        struct ct_tcpstore_blob key = ct_tcpstore_next(&cursor);
        struct store_entry *entry = store_find(client->store, key);

        if (store_entry_exists(entry))
            continue;
        if ((rc = store_check_room(client->store, key.length)) < 0)
            goto fail;
        rc = -ENOMEM;
        if (!entry && !(entry = store_find_or_create(client->store, key)))
            goto fail;
        add(client, added++, entry);
    }
    return 0;
fail:
    store_wait_drop(client);
    return rc;
}

/* Always replies, also if no wait is pending: a client whose release was under way reads both
 * bytes. */
int store_query_cancel_wait(struct store_client *client,
                            const struct ct_tcpstore_request *request)
{
    (void)request;
    store_wait_drop(client);
    return store_reply_u8(client, CT_TCPSTORE_WAIT_CANCELED);
}

/* Counts arrivals under the key, in text, and waits there until enough came. Whoever sets the
 * key releases the participants too; a cancelled or lost participant stays counted. */
int store_query_barrier(struct store_client *client,
                        const struct ct_tcpstore_request *request)
{
    struct store *store = client->store;
    struct store_entry *entry;
    int64_t arrived;
    int rc;

    store_wait_drop(client);
    if ((rc = store_check_room(store, 0)) < 0)
        return rc;
    if (!(entry = store_find_or_create(store, request->key)))
        return -ENOMEM;
    if ((rc = store_entry_add(store, entry, 1, &arrived)) < 0) {
        store_entry_tidy(store, entry);
        return rc;
    }
    if (arrived >= request->number) {
        store_wake_all(store, entry);
        return store_reply_u8(client, CT_TCPSTORE_READY);
    }
    if ((rc = begin(client, 1)) < 0)
        return rc;
    add(client, 0, entry);
    return 0;
}
