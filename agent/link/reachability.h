/* SPDX-License-Identifier: Apache-2.0 */
/* How this node reaches group rank 0: which of its addresses the workers here can use,
 * proven by a connection to the worker store before any of them starts.
 *
 *     reachability_find ── address, 250 ms later the next beside it, ... ──first that answers──> on_found
 *                      └── none: a pause, all of them again, REACHABILITY_PASSES in all ──> on_failed
 *
 * What the server chose comes first: it is taken unless it does not work from here. The others
 * are what that node says it has; those that would lead back to this machine (every docker0 is
 * 172.17.0.1) are left out. A link-local address gets the scope of the interface by which we
 * reach the rendezvous: the server's interface may have another name.
 *
 * The text of on_failed is one sentence and then lines "label: text", for a block of messages:
 *
 *     cannot reach node1 on 10.77.0.11:29611 (Connection refused, 3 tries in 2.1 s)
 *     also tried: 10.78.0.11 (Connection timed out)
 */
#pragma once

#include "agent/loop/loop.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/wire/message.h"

struct reachability;

struct reachability_options {
    struct loop *loop;
    void *context;
    bool may_refuse; /* nobody listens yet: "connection refused" is an answer, too */
    int passes;      /* 0: REACHABILITY_PASSES */
    /* `local` is where our end of the connection was. */
    void (*on_found)(void *context, const struct ct_addr *remote,
                     const struct ct_addr *local);
    /* `text` says what was tried first, and how often; `tried` the other addresses, if there are. */
    void (*on_failed)(void *context, const char *text, const char *tried);
};

enum {
    REACHABILITY_ADDRS_MAX = CT_MESSAGE_ADDRS_MAX + 1
};

/* The addresses of group rank 0 to try from this node, best first. 0: there is nothing to find,
 * because the world is one host, or because a name was typed that the workers are to look up.
 * scope_id: of link-local ones; 0: none is known. */
int reachability_list(struct ct_addr *out, const struct ct_start *start,
                      unsigned scope_id);

int reachability_open(struct reachability **out,
                      const struct reachability_options *options);
/* Calls one of the functions later, never before it returns. count > 0. `host` is copied. */
void reachability_find(struct reachability *search, const struct ct_addr *addrs,
                       int count, const char *host);
void reachability_cancel(
    struct reachability *search); /* nothing is called any more; harmless when idle */
void reachability_close(struct reachability *search); /* NULL is fine */
