/* SPDX-License-Identifier: Apache-2.0 */
/* The store's clients: bytes in, whole requests to their functions, replies out.
 *
 * Requests are executed in place in the caller's buffer; only the part of an incomplete request is
 * copied. Its scan continues where it stopped, so a request costs time linear in its size for any
 * split of its bytes. Memory is allocated for bytes that came, never for bytes that were only
 * announced. */
#include "rendezvous/store/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/store/store_private.h"
#include "worker_sdk/base/alloc.h"

enum {
    VALIDATE_BYTES = 5,
};

static store_query_fn *const query_functions[CT_TCPSTORE_QUERIES] = {
    [CT_TCPSTORE_SET] = store_query_set,
    [CT_TCPSTORE_COMPARE_SET] = store_query_compare_set,
    [CT_TCPSTORE_GET] = store_query_get,
    [CT_TCPSTORE_ADD] = store_query_add,
    [CT_TCPSTORE_CHECK] = store_query_check,
    [CT_TCPSTORE_WAIT] = store_query_wait,
    [CT_TCPSTORE_GETNUMKEYS] = store_query_num_keys,
    [CT_TCPSTORE_DELETE_KEY] = store_query_delete,
    [CT_TCPSTORE_APPEND] = store_query_append,
    [CT_TCPSTORE_MULTI_GET] = store_query_multi_get,
    [CT_TCPSTORE_MULTI_SET] = store_query_multi_set,
    [CT_TCPSTORE_CANCEL_WAIT] = store_query_cancel_wait,
    [CT_TCPSTORE_PING] = store_query_ping,
    [CT_TCPSTORE_QUEUE_PUSH] = store_query_queue_push,
    [CT_TCPSTORE_QUEUE_POP] = store_query_queue_pop,
    [CT_TCPSTORE_QUEUE_LEN] = store_query_queue_len,
    [CT_TCPSTORE_LIST_KEYS] = store_query_list_keys,
    [CT_TCPSTORE_BARRIER] = store_query_barrier,
    [CT_TCPSTORE_WATCH_KEY] = store_query_watch_key,
};

/* ---- Life ------------------------------------------------------------------------------- */

int store_create(struct store **out)
{
    struct store *store = ct_zalloc(sizeof *store);

    if (!store)
        return -ENOMEM;
    if (store_map_init(&store->map) < 0 || store_map_init(&store->groups) < 0) {
        store_map_deinit(&store->map);
        free(store);
        return -ENOMEM;
    }
    ct_list_init(&store->entries);
    ct_list_init(&store->clients);
    ct_list_init(&store->over);
    store_set_limits(store, STORE_DATA_MAX_BYTES, STORE_OUTPUT_TOTAL_MAX_BYTES);
    *out = store;
    return 0;
}

void store_destroy(struct store *store)
{
    if (!store)
        return;
    while (!ct_list_is_empty(&store->clients))
        store_remove_client(
            ct_list_entry(store->clients.next, struct store_client, link));
    while (!ct_list_is_empty(&store->entries))
        store_entry_destroy(
            store, ct_list_entry(store->entries.next, struct store_entry, link));
    assert(store->data_bytes == 0 && store->output_bytes == 0);
    store_map_deinit(&store->map);
    store_map_deinit(&store->groups);
    free(store);
}

void store_set_limits(struct store *store, size_t data_bytes, size_t output_bytes)
{
    store->data_max = data_bytes;
    store->output_max = output_bytes;
}

struct store_client *store_add_client(struct store *store, store_output_fn *on_output,
                                      void *context)
{
    struct store_client *client = ct_zalloc(sizeof *client);

    if (!client)
        return NULL;
    client->store = store;
    client->on_output = on_output;
    client->context = context;
    ct_buf_init(&client->in, STORE_IN_MAX_BYTES);
    ct_buf_init(&client->out, STORE_OUTPUT_MAX_BYTES);
    ct_list_add(&store->clients, &client->link);
    store->stats.clients++;
    return client;
}

void store_remove_client(struct store_client *client)
{
    if (!client)
        return;
    store_wait_drop(client);
    store_group_leave(client);
    client->store->data_bytes -= client->in_charged;
    client->store->output_bytes -= client->out_charged;
    client->store->stats.clients--;
    ct_list_remove(&client->link);
    ct_buf_deinit(&client->in);
    ct_buf_deinit(&client->out);
    free(client);
}

struct ct_buf *store_output(struct store_client *client)
{
    return &client->out;
}

bool store_is_mid_request(const struct store_client *client)
{
    return !client->is_paused && ct_buf_length(&client->in);
}

void store_get_stats(const struct store *store, struct store_stats *out)
{
    *out = store->stats;
    out->data_bytes = store->data_bytes;
    out->output_bytes = store->output_bytes;
}

/* ---- Requests --------------------------------------------------------------------------- */

static bool is_above_mark(const struct store_client *client)
{
    return ct_buf_length(&client->out) > STORE_OUTPUT_MARK_BYTES;
}

static int execute(struct store_client *client, const uint8_t *data)
{
    struct ct_tcpstore_request request;

    ct_tcpstore_decode_request(&client->scan, data, &request);
    client->scan = (struct ct_tcpstore_scan){0};
    client->store->stats.requests++;
    client->store->stats.questions += request.query != CT_TCPSTORE_CHECK;
    return query_functions[request.query](client, &request);
}

/* Executes the complete requests at data; *used is their length. 0, STORE_PAUSED, or < 0: the error
 * that ends the connection. */
static int run(struct store_client *client, const uint8_t *data, size_t length,
               size_t *used)
{
    *used = 0;
    for (;;) {
        const uint8_t *at = data + *used;
        int n;

        if (is_above_mark(client))
            return STORE_PAUSED;
        if (*used == length)
            return 0;
        if (client->dialect == CT_TCPSTORE_UNKNOWN) {
            n = ct_tcpstore_sniff(at, length - *used, &client->dialect);
            if (n < 0 || client->dialect == CT_TCPSTORE_UNKNOWN)
                return n;
            *used += (size_t)n;
            continue;
        }
        /* A legacy client that sends while it waits has given up waiting, and would read a late
         * release as the reply to its new request. */
        if (client->dialect != CT_TCPSTORE_D2)
            store_wait_drop(client);
        n = ct_tcpstore_scan_request(&client->scan, client->dialect, at,
                                     length - *used);
        if (n <= 0)
            return n;
        *used += (size_t)n;
        if ((n = execute(client, at)) < 0)
            return n;
    }
}

static int keep(struct store_client *client, const uint8_t *data, size_t length)
{
    int rc;

    if (ct_buf_length(&client->in) + length > STORE_IN_KEEP_BYTES &&
        (rc = store_check_room(client->store, length)) < 0)
        return rc;
    rc = ct_buf_append(&client->in, data, length);
    store_charge_buffers(client);
    return rc;
}

/* Completes the request in client->in with only the bytes that it needs. */
static int complete(struct store_client *client, const uint8_t **data, size_t *length)
{
    while (ct_buf_length(&client->in) && *length) {
        size_t have = ct_buf_length(&client->in);
        size_t need = client->dialect == CT_TCPSTORE_UNKNOWN ? VALIDATE_BYTES
                                                             : client->scan.need;
        size_t take = need > have ? need - have : 1;
        size_t used;
        int rc;

        if (take > *length)
            take = *length;
        if ((rc = keep(client, *data, take)) < 0)
            return rc;
        *data += take;
        *length -= take;
        rc = run(client, ct_buf_data(&client->in), have + take, &used);
        ct_buf_consume(&client->in, used);
        if (rc)
            return rc;
    }
    return 0;
}

static int receive(struct store_client *client, const uint8_t *data, size_t length)
{
    size_t used = 0;
    int rc = 0;
    int kept;

    if (client->is_paused)
        rc = STORE_PAUSED;
    else if ((rc = complete(client, &data, &length)) == 0)
        rc = run(client, data, length, &used);
    if (rc >= 0 && (kept = keep(client, data + used, length - used)) < 0)
        return kept;
    return rc;
}

/* The common end of store_receive() and store_resume(). */
static int settle(struct store_client *client, int rc)
{
    client->store->running = NULL;
    client->is_paused = rc == STORE_PAUSED;
    if (rc < 0)
        client->error = rc;
    store_shrink(client);
    return rc;
}

int store_receive(struct store_client *client, const uint8_t *data, size_t length)
{
    if (client->error < 0)
        return client->error;
    client->store->running = client;
    return settle(client, receive(client, data, length));
}

int store_resume(struct store_client *client)
{
    size_t used;
    int rc;

    if (client->error < 0)
        return client->error;
    client->store->running = client;
    rc = run(client, ct_buf_data(&client->in), ct_buf_length(&client->in), &used);
    ct_buf_consume(&client->in, used);
    return settle(client, rc);
}
