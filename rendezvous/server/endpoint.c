/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/server/endpoint.h"

#include <errno.h>
#include <stdlib.h>

#include "rendezvous/net/sniff.h"
#include "rendezvous/server/server_limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"

struct endpoint_listener {
    struct ct_list node;
    struct listener listener;
};

void endpoint_init(struct endpoint *endpoint)
{
    ct_list_init(&endpoint->listeners);
    http_init(&endpoint->http, endpoint->dispatch);
}

/* ---- First byte -------------------------------------------------------------------------- */

/* False: *kind says why not. */
static bool may_use_store(const struct endpoint *endpoint, const struct conn *conn,
                          enum reject_kind *kind)
{
    return !endpoint->allowed || store_port_is_open_to(endpoint->allowed, conn, kind);
}

/* torch before 2.1 opens a connection for each worker on which it never sends anything, and uses a
 * whole CPU core if it is closed. */
static bool may_be_silent(const struct endpoint *endpoint, const struct conn *conn)
{
    enum reject_kind kind;

    return endpoint->has_store && may_use_store(endpoint, conn, &kind);
}

static void on_store_client(struct endpoint *endpoint, struct conn *conn,
                            const uint8_t *data, size_t length)
{
    enum reject_kind kind;
    struct ctrun_error err;

    if (!endpoint->has_store) {
        conn_close(conn, "no TCPStore is served here");
        return;
    }
    if (!may_use_store(endpoint, conn, &kind)) {
        conn_turn_away(conn, kind);
        return;
    }
    if (!endpoint->store &&
        store_port_open(&endpoint->store, endpoint->pool, NULL, &err) < 0) {
        ct_err("%s", err.text);
        conn_close(conn, "out of memory");
        return;
    }
    store_port_on_bytes(endpoint->store, conn, data, length);
}

/* Has no callbacks: for a connection that is closed before it gets a user. */
static const struct conn_user nobody = {0};

static void on_first_bytes(struct conn *conn, const uint8_t *data, size_t length)
{
    struct endpoint *endpoint = conn->context;

    conn->user = &nobody;
    switch (sniff_first_bytes(data, length)) {
    case SNIFF_FRAME: dispatch_on_bytes(endpoint->dispatch, conn, data, length); break;
    case SNIFF_STORE: on_store_client(endpoint, conn, data, length); break;
    case SNIFF_HTTP: http_on_bytes(&endpoint->http, conn, data, length); break;
    case SNIFF_MORE:
    case SNIFF_FOREIGN: conn_turn_away(conn, REJECT_FOREIGN); break;
    }
}

static void on_connection(struct listener *listener, void *context)
{
    static const struct conn_user silent_conn = {
        .kind = "silent",
        .on_bytes = on_first_bytes,
    };
    struct endpoint *endpoint = context;
    struct conn *conn = conn_accept(endpoint->pool, listener, &nobody, endpoint);

    if (!conn)
        return;
    conn->user = &silent_conn;
    if (!may_be_silent(endpoint, conn))
        conn_set_deadline(conn);
}

/* ---- Listeners --------------------------------------------------------------------------- */

static void on_listener_closed(void *context)
{
    free(context);
}

static void close_listener(struct endpoint_listener *entry)
{
    ct_list_remove(&entry->node);
    entry->listener.context = entry;
    listener_close(&entry->listener, on_listener_closed);
}

int endpoint_listen(struct endpoint *endpoint, const struct listen_place *place,
                    uint16_t *port, struct ctrun_error *err)
{
    struct endpoint_listener *entry;
    uint16_t bound = 0;
    int rc;

    if (endpoint->listener_count >= SERVER_LISTENERS_MAX)
        return ct_fail(err, -ENOBUFS, "listen: a server has at most %d addresses",
                       SERVER_LISTENERS_MAX);
    if (!(entry = ct_zalloc(sizeof *entry)))
        return ct_fail(err, -ENOMEM, "listen: out of memory");
    ct_list_init(&entry->node);
    entry->listener.on_connection = on_connection;
    entry->listener.context = endpoint;
    rc = listener_open(&entry->listener, endpoint->pool->loop, place, &bound, err);
    if (rc < 0) {
        close_listener(entry);
        return rc;
    }
    ct_list_add(&endpoint->listeners, &entry->node);
    endpoint->listener_count++;
    *port = bound;
    return 0;
}

void endpoint_close_listeners(struct endpoint *endpoint)
{
    ct_list_for_each_safe(struct endpoint_listener, endpoint_listener,
                          &endpoint->listeners, node)
        close_listener(endpoint_listener);
    endpoint->listener_count = 0;
}

/* ---- Store ------------------------------------------------------------------------------- */

void endpoint_drop_store(struct endpoint *endpoint)
{
    store_port_close(endpoint->store);
    endpoint->store = NULL;
}
