/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint: listeners that take agents, TCPStore clients and HTTP on one port.
 *
 * A connection has no user until its first byte tells the protocol (sniff.h). A client that may use
 * a store here may stay silent, until its connection is closed to make room (conn.h): stock PyTorch
 * opens such connections. The store behind the endpoint is created with its first client. */
#pragma once

#include <stdbool.h>

#include "rendezvous/net/listener.h"
#include "rendezvous/server/http.h"
#include "rendezvous/server/store_port.h"
#include "rendezvous/session/dispatch.h"

struct endpoint {
    struct conn_pool *pool;
    struct dispatch *dispatch;
    bool has_store;                   /* false: TCPStore clients are refused */
    const struct allow_list *allowed; /* borrowed; who may use it; NULL: all clients */
    struct store_port *store;         /* owned; NULL until the first client */
    struct ct_list listeners;
    size_t listener_count;
    struct http http;
};

/* `endpoint` is zeroed except pool, dispatch and has_store. */
void endpoint_init(struct endpoint *endpoint);
int endpoint_listen(struct endpoint *endpoint, const struct listen_place *place,
                    uint16_t *port, struct ctrun_error *err);
/* Closes the endpoint's store and its clients; the next client finds a new, empty one. */
void endpoint_drop_store(struct endpoint *endpoint);
/* Stops listening; connections stay. */
void endpoint_close_listeners(struct endpoint *endpoint);
