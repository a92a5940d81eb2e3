/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the store client share: store.c connects and exchanges messages, store_call.c
 * has the operations. */
#pragma once

#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/client/store.h"
#include "worker_sdk/tcpstore/codec.h"

struct ctrun_store {
    int fd; /* -1: dead */
    enum ct_tcpstore_dialect dialect;
    bool has_ping; /* torch 2.2 to 2.4 does not know it */
    uint64_t timeout_ms;
    struct ct_addr addr; /* the server's address that answered */
    char host[CT_HOST_MAX];
    int port;
    struct ct_buf out;
    struct ct_buf in;
    struct ct_buf keys; /* wire form of the keys of the current call */
};

/* Appends the request to the output buffer. On failure the error names the key. */
int ct_store_request(struct ctrun_store *store,
                     const struct ct_tcpstore_request *request,
                     const struct ct_tcpstore_blob *lists, struct ctrun_error *err);
/* Sends the output buffer. Reads replies while the server accepts no data. */
int ct_store_flush(struct ctrun_store *store, uint64_t deadline_ms,
                   struct ctrun_error *err);
/* Flushes and reads until the reply to `query` is complete at the front of store->in; returns
 * its length, for ct_buf_consume(). CTRUN_E_TIMEOUT leaves the connection as it is; after any
 * other failure the store is dead. */
int ct_store_await(struct ctrun_store *store, enum ct_tcpstore_query query,
                   uint64_t deadline_ms, struct ctrun_error *err);
/* ct_store_request() and ct_store_await(); no other reply may be outstanding. A time-out ends the
 * store, too: the store's own, or the end of deadline_ms. */
int ct_store_ask(struct ctrun_store *store, const struct ct_tcpstore_request *request,
                 const struct ct_tcpstore_blob *lists, struct ctrun_error *err);
int ct_store_ask_until(struct ctrun_store *store,
                       const struct ct_tcpstore_request *request,
                       const struct ct_tcpstore_blob *lists, uint64_t deadline_ms,
                       struct ctrun_error *err);
/* Replaces the connection, because a server that cannot cancel a wait may answer it at any time. */
int ct_store_reconnect(struct ctrun_store *store, uint64_t deadline_ms,
                       struct ctrun_error *err);
/* Closes the connection for good and returns rc. */
int ct_store_kill(struct ctrun_store *store, int rc);
