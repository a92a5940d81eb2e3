/* SPDX-License-Identifier: Apache-2.0 */
/* How this node reaches group rank 0: which of its addresses the workers here can use, proven by
 * a connection to the worker store before any of them starts.
 *
 *     reachability_find ── address, 250 ms later the next beside it, ... ──first that answers──> on_found
 *                      └── none: a pause, all of them again, REACHABILITY_PASSES in all ──> on_failed
 *
 * The address that the server chose comes first: it is used if it works from here. The others
 * are the addresses that the node of rank 0 reports; those that would lead back to this machine
 * (every docker0 is 172.17.0.1) are left out. A link-local address gets the scope of the
 * interface by which we reach the rendezvous: the server's interface may have another name.
 *
 * The text of on_failed is one sentence and then lines "label: text", for a block of messages:
 *
 *     cannot reach node1 on 10.77.0.11:29611 (Connection refused, 3 tries in 2.1 s)
 *     also tried: 10.78.0.11 (Connection timed out) */
#pragma once

#include "agent/loop/loop.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/wire/message.h"

struct reachability;

struct reachability_options {
    struct loop *loop;
    void *context;
    /* no listener is required: "connection refused" is an answer, too */
    bool may_refuse;
    int passes; /* 0: REACHABILITY_PASSES */
    /* `local` is our end of the connection. */
    void (*on_found)(void *context, const struct ct_addr *remote,
                     const struct ct_addr *local);
    /* `text` tells which address was tried first, and how often; `tried` the other addresses, if
     * any. */
    void (*on_failed)(void *context, const char *text, const char *tried);
};

enum {
    REACHABILITY_ADDRS_MAX = CT_MESSAGE_ADDRS_MAX + 1
};

/* The addresses of group rank 0 to try from this node, best first. 0: no search is needed,
 * because the world is one host, or because the user gave a name that the workers look up
 * themselves. scope_id: of link-local ones; 0: none is known. */
int reachability_list(struct ct_addr *out, const struct ct_start *start,
                      unsigned scope_id);

int reachability_open(struct reachability **out,
                      const struct reachability_options *options);
/* Calls on_found or on_failed later, never before it returns. count > 0. `host` is copied. */
void reachability_find(struct reachability *search, const struct ct_addr *addrs,
                       int count, const char *host);
void reachability_cancel(
    struct reachability *search); /* no callback comes after this; harmless when idle */
void reachability_close(struct reachability *search); /* NULL is fine */
