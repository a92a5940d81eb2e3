/* SPDX-License-Identifier: Apache-2.0 */
/* A listening socket on the loop: on one address, or on all (v4 and v6). Connections are accepted a
 * few at a time, so that the loop does its other work in between.
 *
 * libuv's own listener is not used: without a descriptor for the next connection it tries to accept
 * it for ever, and the loop does nothing else. Here it is tried again after a while, and a line says
 * so. */
#pragma once

#include <uv.h>

#include "rendezvous/net/listen_fd.h"
#include "worker_sdk/base/seldom.h"

struct listener;

/* Called for each connection that waits: conn_accept() it. One that is not accepted waits for
 * listener_retry(). */
typedef void listener_fn(struct listener *listener, void *context);

struct listener {
    uv_poll_t poll;
    uv_timer_t
        turn; /* ends a millisecond that had LISTENER_BURST connections, or a pause */
    int fd;
    unsigned count; /* in this millisecond */
    int last;       /* result of the last listener_accept() */
    listener_fn *on_connection;
    void *context; /* borrowed */
    void (*on_closed)(void *context);
    int handles;  /* not closed yet */
    bool is_open; /* the handles need closing */
    struct ct_seldom full;
};

/* `listener` is zeroed. *port is the port in use. CTRUN_E_PORT_BUSY (err names the owner if it can
 * be found) or a negative errno; listener_close() is needed in any case. */
int listener_open(struct listener *listener, uv_loop_t *loop,
                  const struct listen_place *place, uint16_t *port,
                  struct ctrun_error *err);
/* The next connection, which is the caller's, or a negative errno: it has gone, or it has to
 * wait. */
int listener_accept(struct listener *listener);
/* Calls on_connection for a connection that it did not accept before, if there is one. */
void listener_retry(struct listener *listener);
/* on_closed(context) is called later, or at once if the listener was never open. May be NULL. */
void listener_close(struct listener *listener, void (*on_closed)(void *context));
