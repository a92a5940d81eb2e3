/* SPDX-License-Identifier: Apache-2.0 */
/* The few lines of HTTP that probes and people need: GET /healthz, /status, /metrics.
 *
 * One request a connection; everything else is 404. The request line is all that is looked at.
 * Anybody may ask, so it costs little: a few connections, the oldest of which makes room, and a
 * page for all who ask within a while. */
#pragma once

#include "rendezvous/session/dispatch.h"

struct http_page;

enum http_path {
    HTTP_STATUS,
    HTTP_METRICS,
    HTTP_PATHS
};

struct http {
    const struct dispatch *dispatch;
    struct ct_list clients; /* the oldest first */
    size_t count;
    struct http_page *pages[HTTP_PATHS]; /* the last ones that were made; NULL: none */
};

void http_init(struct http *http, const struct dispatch *dispatch);
/* conn speaks HTTP from now on; `data` are the bytes that it has sent already. */
void http_on_bytes(struct http *http, struct conn *conn, const uint8_t *data,
                   size_t length);
/* Clients may still be there: they have their pages. */
void http_deinit(struct http *http);
