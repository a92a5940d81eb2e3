/* SPDX-License-Identifier: Apache-2.0 */
/* The part of HTTP that probes and users need: GET /healthz, /livez, /status, /metrics.
 *
 * One request a connection; everything else is 404. Only the request line is read. Any client may
 * ask, so the cost is bounded: a few connections, of which the oldest is closed to make room, and
 * one page for all clients that ask within a short time. */
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
    struct http_page *pages[HTTP_PATHS]; /* the last page for each path; NULL: none */
};

void http_init(struct http *http, const struct dispatch *dispatch);
/* Makes conn an HTTP client; `data` are the bytes that it has sent already. */
void http_on_bytes(struct http *http, struct conn *conn, const uint8_t *data,
                   size_t length);
/* Clients may still be connected: each holds its page. */
void http_deinit(struct http *http);
