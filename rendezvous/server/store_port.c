/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/server/store_port.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "rendezvous/net/peer_uid.h"
#include "rendezvous/store/store.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"

enum {
    PURGE_KEYS = 500 /* in one turn of the loop: below a millisecond */
};

/* Links a connection to a client of the engine. Owned by the connection: freed in on_close(), which
 * is called exactly once. */
struct store_user {
    struct ct_list node;    /* port->users */
    struct ct_list touched; /* port->touched */
    struct store_port *port;
    struct conn *conn;
    struct store_client *client;
    bool is_speaking; /* its first request has begun and must be complete in time */
    bool has_spoken;
};

/* False: it is closed, as the protocol of the store has no refusal. */
static bool prove_client(struct conn *conn)
{
    if (conn_prove(conn, CONN_CLIENT))
        return true;
    conn_close(conn, reject_sentence(REJECT_TOO_MANY));
    return false;
}

static void on_result(struct store_user *user, int rc)
{
    struct conn *conn = user->conn;

    if (!user->has_spoken && !store_is_mid_request(user->client)) {
        user->has_spoken = user->port->is_used = true;
        conn_clear_deadline(conn);
        if (rc >= 0 && !prove_client(conn))
            return;
    }
    if (rc == -EPROTO || rc == -EMSGSIZE)
        conn_note(conn, REJECT_MALFORMED);
    if (rc < 0) {
        ct_debug("store client closed: its request %s error=%s",
                 rc == -EPROTO || rc == -EMSGSIZE ? "is malformed"
                                                  : "could not be executed",
                 ct_error_name(rc));
        conn_finish(conn); /* earlier replies must still be sent */
        return;
    }
    if (rc == STORE_PAUSED)
        conn_pause(conn);
    else
        conn_resume(conn);
}

/* Another client's request released this client. The engine is still in that request and must not
 * be entered again, so the bytes are sent after it has returned. */
static void on_output(void *context)
{
    struct store_user *user = context;

    ct_list_remove(&user->touched);
    ct_list_add(&user->port->touched, &user->touched);
}

static void flush_touched(struct store_port *port)
{
    if (port->is_flushing)
        return; /* the loop below handles users added meanwhile */
    port->is_flushing = true;
    while (!ct_list_is_empty(&port->touched)) {
        struct store_user *user = ct_list_entry(port->touched.next, struct store_user,
                                                touched);

        ct_list_remove(&user->touched);
        conn_flush(user->conn);
    }
    port->is_flushing = false;
}

/* Updates the marks of a watched store: when its ranks have met, and the last request. */
static void take_marks(struct store_port *port, const struct conn *conn,
                       uint64_t questions_before)
{
    struct store_stats stats;
    const uint64_t one = 1;

    store_get_stats(port->store, &stats);
    if (stats.questions == questions_before)
        return;
    port->marks.asked_ms = ct_now_ms();
    if (port->marks.met_ms > 0 || stats.ranks < port->world)
        return;
    port->marks.met_ms = port->marks.asked_ms;
    port->marks.last = conn->remote;
    port->marks.local = conn->local;
    (void)!write(port->met_fd, &one, sizeof one); /* it has room for 2^64 of them */
}

void store_port_watch(struct store_port *port, uint32_t world, int met_fd)
{
    port->world = world;
    port->met_fd = met_fd;
}

static int receive(struct store_user *user, const uint8_t *data, size_t length)
{
    struct store_port *port = user->port;
    struct store_stats before;
    int rc;

    if (port->world == 0)
        return store_receive(user->client, data, length);
    store_get_stats(port->store, &before);
    rc = store_receive(user->client, data, length);
    take_marks(port, user->conn, before.questions);
    return rc;
}

static void on_bytes(struct conn *conn, const uint8_t *data, size_t length)
{
    struct store_user *user = conn->context;

    if (!user->is_speaking)
        conn_set_deadline(conn);
    user->is_speaking = true;
    on_result(user, receive(user, data, length));
    conn_flush(conn);
    flush_touched(user->port);
}

/* Output was sent: requests that had to wait for room may continue. Reading is off only while the
 * engine is paused. */
static void on_sent(struct conn *conn)
{
    struct store_user *user = conn->context;

    if (conn->is_reading)
        return;
    on_result(user, store_resume(user->client));
    flush_touched(user->port);
}

static void on_purge(uv_idle_t *idle)
{
    struct store_port *port = idle->data;

    if (!store_purge(port->store, PURGE_KEYS))
        (void)uv_idle_stop(idle); /* cannot fail */
}

static void on_close(struct conn *conn, const char *reason)
{
    struct store_user *user = conn->context;
    struct store_port *port = user->port;

    (void)reason; /* workers come and go */
    ct_list_remove(&user->node);
    ct_list_remove(&user->touched);
    store_remove_client(user->client);
    free(user);
    /* Keys of a finished run of stock agents are freed a few at a time between other events: a
     * hundred thousand at once would delay all clients. */
    if (store_purge(port->store, PURGE_KEYS))
        (void)uv_idle_start(&port->purge, on_purge); /* cannot fail */
}

static const struct conn_user store_conn = {
    .kind = "store",
    .on_bytes = on_bytes,
    .on_sent = on_sent,
    .on_close = on_close,
};

void store_port_on_bytes(struct store_port *port, struct conn *conn,
                         const uint8_t *data, size_t length)
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

bool store_port_is_open_to(const struct allow_list *allowed, const struct conn *conn,
                           enum reject_kind *kind)
{
    *kind = allowed->is_sealed ? REJECT_NO_MEMBER : REJECT_EARLY;
    if (!allow_list_has(allowed, &conn->remote, &conn->local))
        return false;
    switch (peer_user_of(&conn->remote, &conn->local)) {
    case PEER_USER_OURS: return true;
    case PEER_USER_OTHER: *kind = REJECT_USER; break;
    case PEER_USER_GONE: *kind = REJECT_GONE; break;
    }
    return false;
}

static void on_connection(struct listener *listener, void *context)
{
    static const struct conn_user nobody = {0};
    struct store_port *port = context;
    enum reject_kind kind;
    struct conn *conn;

    if (port->is_limited && !port->allowed.is_sealed)
        return; /* left waiting: store_port_admit() accepts it later */
    if (!(conn = conn_accept(port->pool, listener, &nobody, NULL)))
        return;
    if (port->is_limited && !store_port_is_open_to(&port->allowed, conn, &kind))
        conn_turn_away(conn, kind);
    else if (!port->is_limited || prove_client(conn))
        store_port_on_bytes(port, conn, NULL, 0);
}

void store_port_guard(struct store_port *port)
{
    port->is_limited = true;
}

void store_port_admit(struct store_port *port, const uint8_t (*keys)[16], size_t count,
                      bool is_last)
{
    const bool was_sealed = port->allowed.is_sealed;

    if (allow_list_add(&port->allowed, keys, count) < 0)
        ct_err("worker store: out of memory for the list of nodes; the workers "
               "of some nodes are refused");
    if (!is_last)
        return;
    allow_list_seal(&port->allowed);
    if (!was_sealed && port->listener.is_open)
        listener_retry(&port->listener);
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
    (void)uv_idle_init(pool->loop, &port->purge); /* only fills memory */
    port->purge.data = port;
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

static void on_purge_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_listener_closed(void *context)
{
    struct store_port *port = context;

    uv_close((uv_handle_t *)&port->purge, on_purge_closed);
}

/* Removes the engine's client from a connection that will be closed later. */
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
    if (!port)
        return;
    ct_list_for_each_safe(struct store_user, store_user, &port->users, node)
        detach(store_user);
    ct_list_remove(&port->node);
    allow_list_deinit(&port->allowed);
    (void)uv_idle_stop(&port->purge); /* cannot fail; it would look into the store */
    store_destroy(port->store);
    port->store = NULL;
    listener_close(&port->listener, on_listener_closed);
}
