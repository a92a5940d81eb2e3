/* SPDX-License-Identifier: Apache-2.0 */
/* A listening socket on the loop: on one address, or on all (v4 and v6). Connections are accepted a
 * few at a time, so that the loop does its other work in between. */
#pragma once

#include <uv.h>

#include "rendezvous/net/listen_fd.h"

/* Called for each connection that waits: conn_accept() it. */
typedef void listener_fn(uv_stream_t *stream, void *context);

struct listener {
    uv_tcp_t tcp;
    uv_timer_t turn; /* ends a millisecond that had LISTENER_BURST connections */
    unsigned count;  /* in this millisecond */
    bool is_held;    /* a connection waits for the next millisecond */
    listener_fn *on_connection;
    void *context; /* borrowed */
    void (*on_closed)(void *context);
    int handles;  /* not closed yet */
    bool is_open; /* the handles need closing */
};

/* `listener` is zeroed. *port is the port in use. CTRUN_E_PORT_BUSY (err names the owner if it can
 * be found) or a negative errno; listener_close() is needed in any case. */
int listener_open(struct listener *listener, uv_loop_t *loop,
                  const struct listen_place *place, uint16_t *port,
                  struct ctrun_error *err);
/* Calls on_connection for a connection that it did not accept before, if there is one. */
void listener_retry(struct listener *listener);
/* on_closed(context) is called later, or at once if the listener was never open. May be NULL. */
void listener_close(struct listener *listener, void (*on_closed)(void *context));
