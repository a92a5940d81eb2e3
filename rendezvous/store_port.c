/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/store_port.h"

#include <stdlib.h>

#include "rendezvous/limits.h"
#include "rendezvous/store.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/log.h"

/* What ties a connection to the engine's client. */
struct store_user {
    struct ct_list node;    /* port->users */
    struct ct_list touched; /* port->touched */
    struct store_port *port;
    struct conn *conn;
    struct store_client *client;
};

static void on_result(struct store_user *user, int rc)
{
    struct conn *conn = user->conn;

    if (rc < 0) {
        ct_debug("store client closed: it sent what a TCPStore does not take error=%s",
                 ct_error_name(rc));
        conn_finish(conn); /* the replies before it are still due */
        return;
    }
    if (rc == STORE_PAUSED)
        conn_pause(conn);
    else
        conn_resume(conn);
}

/* Another client's request released this one. The engine is in the middle of that request and
 * must not be entered again, so the bytes go out when it has returned. */
static void on_output(void *context)
{
    struct store_user *user = context;

    ct_list_remove(&user->touched);
    ct_list_add(&user->port->touched, &user->touched);
}

static void flush_touched(struct store_port *port)
{
    if (port->is_flushing)
        return; /* the loop below takes what was added meanwhile */
    port->is_flushing = true;
    while (!ct_list_is_empty(&port->touched)) {
        struct store_user *user = ct_list_entry(port->touched.next, struct store_user,
                                                touched);

        ct_list_remove(&user->touched);
        conn_flush(user->conn);
    }
    port->is_flushing = false;
}

static void on_bytes(struct conn *conn, const uint8_t *data, size_t length)
{
    struct store_user *user = conn->context;

    on_result(user, store_receive(user->client, data, length));
    conn_flush(conn);
    flush_touched(user->port);
}

/* Output was taken: requests that had to wait for room may go on. Reading is off just while
 * the engine is paused. */
static void on_sent(struct conn *conn)
{
    struct store_user *user = conn->context;

    if (conn->is_reading)
        return;
    on_result(user, store_resume(user->client));
    flush_touched(user->port);
}

static void on_close(struct conn *conn, const char *reason)
{
    struct store_user *user = conn->context;

    (void)reason; /* workers come and go */
    ct_list_remove(&user->node);
    ct_list_remove(&user->touched);
    store_remove_client(user->client);
    free(user);
}

static const struct conn_user store_conn = {
    .kind = "store",
    .on_bytes = on_bytes,
    .on_sent = on_sent,
    .on_close = on_close,
};

void store_port_take(struct store_port *port, struct conn *conn, const uint8_t *data,
                     size_t length)
{
    static const struct conn_user nobody = {0};
    struct store_user *user = ct_zalloc(sizeof *user);

    if (user)
        user->client = store_add_client(port->store, on_output, user);
    if (!user || !user->client) {
        free(user);
        conn->user = &nobody;
        conn_close(conn, "out of memory");
        return;
    }
    user->conn = conn;
    user->port = port;
    ct_list_init(&user->touched);
    ct_list_add(&port->users, &user->node);
    conn->user = &store_conn;
    conn->context = user;
    conn->out = store_output(user->client);
    if (length > 0)
        on_bytes(conn, data, length);
}

static void on_connection(uv_stream_t *stream, void *context)
{
    static const struct conn_user nobody = {0};
    struct store_port *port = context;
    struct conn *conn = conn_accept(port->pool, stream, &nobody, NULL);

    if (conn)
        store_port_take(port, conn, NULL, 0);
}

int store_port_open(struct store_port **out, struct conn_pool *pool,
                    const struct listen_place *place, struct ctrun_error *err)
{
    struct store_port *port = ct_zalloc(sizeof *port);
    int rc;

    if (!port)
        return ct_fail(err, -ENOMEM, "open a store: out of memory");
    ct_list_init(&port->node);
    ct_list_init(&port->users);
    ct_list_init(&port->touched);
    port->pool = pool;
    port->listener.on_connection = on_connection;
    port->listener.context = port;
    if ((rc = store_create(&port->store)) < 0)
        ct_fail(err, rc, "open a store: out of memory");
    else if (place)
        rc = listener_open(&port->listener, pool->loop, place, &port->port, err);
    if (rc < 0) {
        store_port_close(port);
        return rc;
    }
    *out = port;
    return 0;
}

static void on_listener_closed(void *context)
{
    free(context);
}

/* Takes the engine's client away from a connection that is still to be closed. */
static void detach(struct store_user *user)
{
    static const struct conn_user nobody = {0};
    struct conn *conn = user->conn;

    conn->user = &nobody;
    conn->out = &conn->own_out;
    ct_list_remove(&user->node);
    ct_list_remove(&user->touched);
    store_remove_client(user->client);
    free(user);
    conn_close(conn, "the store was closed");
}

void store_port_close(struct store_port *port)
{
    struct ct_list *it, *keep;

    if (!port)
        return;
    ct_list_for_each_safe(it, keep, &port->users)
        detach(ct_list_entry(it, struct store_user, node));
    ct_list_remove(&port->node);
    store_destroy(port->store);
    port->store = NULL;
    listener_close(&port->listener, on_listener_closed);
}
