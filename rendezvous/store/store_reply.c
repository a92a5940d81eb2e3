/* SPDX-License-Identifier: Apache-2.0 */
/* Replies, and the memory of a client's buffers. */
#include <errno.h>
#include <string.h>

#include "rendezvous/store/store_private.h"

/* ---- Accounts --------------------------------------------------------------------------- */

static bool has_room(size_t account, size_t max, size_t bytes)
{
    return bytes <= max && account <= max - bytes;
}

int store_check_room(const struct store *store, size_t bytes)
{
    return has_room(store->data_bytes, store->data_max, bytes) ? 0 : -ENOBUFS;
}

static void charge(size_t *account, size_t *charged, size_t capacity)
{
    *account += capacity - *charged; /* wraps and wraps back when it shrinks */
    *charged = capacity;
}

void store_charge_buffers(struct store_client *client)
{
    charge(&client->store->data_bytes, &client->in_charged, client->in.capacity);
    charge(&client->store->output_bytes, &client->out_charged, client->out.capacity);
}

void store_shrink(struct store_client *client)
{
    struct ct_buf smaller;
    uint8_t *at;

    if (!ct_buf_length(&client->in) && client->in.capacity > STORE_IN_KEEP_BYTES) {
        ct_buf_deinit(&client->in);
        ct_buf_init(&client->in, STORE_IN_MAX_BYTES);
    }
    if (client->out.capacity > 2 * STORE_OUTPUT_MARK_BYTES &&
        ct_buf_length(&client->out) <= STORE_OUTPUT_MARK_BYTES) {
        ct_buf_init(&smaller, STORE_OUTPUT_MAX_BYTES);
        if (ct_buf_reserve(&smaller, ct_buf_length(&client->out) + 1, &at) == 0) {
            (void)ct_buf_append(&smaller,
                                ct_buf_data(&client->out), /* fits: reserved */
                                ct_buf_length(&client->out));
            ct_buf_deinit(&client->out);
            client->out = smaller;
        }
    }
    store_charge_buffers(client);
}

/* ---- Replies ---------------------------------------------------------------------------- */

uint8_t *store_reply(struct store_client *client, size_t length)
{
    struct store *store = client->store;
    /* A client that waits keeps one byte in reserve: its release must not fail. */
    size_t room = length + (client->waits ? 1 : 0);
    uint8_t *at;
    int rc;

    if (length > STORE_OUTPUT_MARK_BYTES &&
        !has_room(store->output_bytes, store->output_max, length))
        rc = -ENOBUFS;
    else
        rc = ct_buf_reserve(&client->out, room, &at);
    if (rc < 0) {
        client->error = rc;
        return NULL;
    }
    charge(&store->output_bytes, &client->out_charged, client->out.capacity);
    ct_buf_commit(&client->out, length);
    return at;
}

int store_reply_u8(struct store_client *client, uint8_t value)
{
    uint8_t *at = store_reply(client, 1);

    if (!at)
        return client->error;
    *at = value;
    return 0;
}

int store_reply_i64(struct store_client *client, int64_t value)
{
    uint8_t *at = store_reply(client, 8);

    if (!at)
        return client->error;
    (void)ct_tcpstore_put_u64(at, (uint64_t)value);
    return 0;
}

int store_reply_blob(struct store_client *client, const uint8_t *data, size_t length)
{
    uint8_t *at = store_reply(client, 8 + length);

    if (!at)
        return client->error;
    at = ct_tcpstore_put_u64(at, length);
    if (length)
        memcpy(at, data, length);
    return 0;
}
