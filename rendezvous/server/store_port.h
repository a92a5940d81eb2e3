/* SPDX-License-Identifier: Apache-2.0 */
/* A TCPStore behind a port: the connections of one store, and its listener if it has its own.
 *
 *     worker store    store_port_open() with a listener of its own
 *     endpoint store  without: the endpoint's listener hands connections over with
 *                     store_port_on_bytes(), once their first byte is a TCPStore query */
#pragma once

#include <stdbool.h>

#include "rendezvous/net/conn.h"
#include "rendezvous/net/listener.h"
#include "rendezvous/server/server.h"
#include "rendezvous/store/allow_list.h"

struct store;

struct store_port {
    struct ct_list node; /* in the list of the creator */
    uint64_t id;
    uint16_t port; /* 0: no listener of its own */
    struct store *store;
    struct conn_pool *pool;
    struct listener listener;
    uv_idle_t purge; /* runs while the store has keys to purge */
    bool is_limited; /* only `allowed` may use it; all wait until it is complete */
    struct allow_list allowed;
    struct ct_list users;   /* struct store_user, one a connection */
    struct ct_list touched; /* users with new output, by another user's request */
    bool is_flushing;
    bool is_used;   /* a client has asked something */
    uint32_t world; /* ranks that will meet in it; 0: not watched */
    int met_fd;     /* eventfd, written once they have met; borrowed */
    struct server_store_marks marks;
};

/* *out is owned by the caller until store_port_close(). `place` is where to listen; NULL: without a
 * listener. */
int store_port_open(struct store_port **out, struct conn_pool *pool,
                    const struct listen_place *place, struct ctrun_error *err);
/* True if the process at the other end may use a store of a run with these nodes. False: *kind says
 * why not. */
bool store_port_is_open_to(const struct allow_list *allowed, const struct conn *conn,
                           enum reject_kind *kind);
/* From now on only the nodes from store_port_admit() are accepted, and none before the list is
 * complete. */
void store_port_guard(struct store_port *port);
/* Adds a part of the list; after the last part, waiting connections are accepted or refused.
 * Without memory the list ends as it is. */
void store_port_admit(struct store_port *port, const uint8_t (*keys)[16], size_t count,
                      bool is_last);
/* From now on the marks are recorded, and `met_fd`, an eventfd, is written once `world` ranks have
 * met in the store. */
void store_port_watch(struct store_port *port, uint32_t world, int met_fd);
/* Makes conn a client of this store. `data` are the bytes that it has sent already. */
void store_port_on_bytes(struct store_port *port, struct conn *conn,
                         const uint8_t *data, size_t length);
/* Closes listener and connections, frees the values at once and the rest when the loop has
 * closed the handles. Accepts NULL. */
void store_port_close(struct store_port *port);
