/* SPDX-License-Identifier: Apache-2.0 */
/* The few lines of HTTP that probes and people need: GET /healthz, /status, /metrics.
 *
 * One request a connection; everything else is 404. The request line is all that is looked at. */
#ifndef RENDEZVOUS_HTTP_H
#define RENDEZVOUS_HTTP_H

#include "rendezvous/dispatch.h"

/* conn speaks HTTP from now on; `data` are the bytes that it has sent already. */
void http_take(const struct dispatch *dispatch, struct conn *conn, const uint8_t *data,
               size_t length);

#endif
