/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint: listeners that take agents, TCPStore clients and HTTP on one port.
 *
 * A connection has no user until its first byte says what it is (sniff.h). Those that stay
 * silent are kept, up to CONN_SILENT_MAX: stock PyTorch opens such ones and must not lose
 * them. The store behind the endpoint is created with its first client. */
#ifndef RENDEZVOUS_ENDPOINT_H
#define RENDEZVOUS_ENDPOINT_H

#include <stdbool.h>

#include "rendezvous/dispatch.h"
#include "rendezvous/listener.h"
#include "rendezvous/store_port.h"

struct endpoint {
    struct conn_pool *pool;
    struct dispatch *dispatch;
    bool has_store;                  /* else TCPStore clients are turned away */
    const struct guest_list *guests; /* kept; who may use it; NULL: everybody */
    struct store_port *store;        /* owned; NULL until somebody wants it */
    struct ct_list listeners;
    size_t listener_count;
    size_t silent_count;
};

/* `endpoint` is zeroed but for pool, dispatch and has_store. */
void endpoint_init(struct endpoint *endpoint);
int endpoint_listen(struct endpoint *endpoint, const struct listen_place *place,
                    uint16_t *port, struct ctrun_error *err);
/* Closes the endpoint's store and its clients; the next client finds a new, empty one. */
void endpoint_drop_store(struct endpoint *endpoint);
/* Stops listening; connections stay. */
void endpoint_close_listeners(struct endpoint *endpoint);

#endif
