/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP requests with libcurl, which is loaded when the first client is opened: a run that needs
 * none does not pay for it.
 *
 * A client is for one thread; http_client_wake() ends a request that waits, from any other.
 * Whatever it opens is closed on exec. Names are resolved by the caller: curl asks no name
 * server. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/buf.h"

struct http_client;

struct http_client_options {
    const char *ca_file;   /* all copied; NULL or empty: the system's */
    const char *cert_file; /* NULL: none */
    const char *key_file;
};

struct http_request {
    const char *url;  /* http:// or https:// */
    const char *host; /* of the url; its addresses are: */
    int port;
    const struct ct_addr *addrs;
    int addr_count;            /* 0: the host is a number */
    const char *authorization; /* header value; NULL or empty: none */
    const void *body;
    size_t length;
    uint64_t connect_ms;
    uint64_t deadline_ms; /* of the whole */
    /* Takes a piece of the body; false: that is enough, the request ends well. */
    bool (*on_body)(void *context, const void *data, size_t length);
    void *context;
};

/* 0, CTRUN_E_USAGE: there is no libcurl (err says what to do), -ENOMEM. Not thread-safe. */
int http_client_open(struct http_client **out,
                     const struct http_client_options *options,
                     struct ctrun_error *err);
void http_client_close(struct http_client *client);
/* POSTs and waits. 0 and *status (0 when on_body ended it before there was one), or:
 * -ECANCELED (woken), -ETIMEDOUT, -EACCES (we refuse the server's certificate), -EPERM (the server
 * refuses ours, or that we have none), -EBADF (a file of ours cannot be used), -ENODATA (the
 * connection was closed without an answer), -ENOTCONN (everything else). */
int http_client_post(struct http_client *client, const struct http_request *request,
                     long *status, struct ctrun_error *err);
/* From any thread, for good: this request and all later ones end with -ECANCELED until
 * http_client_rearm(). */
void http_client_wake(struct http_client *client);
void http_client_rearm(struct http_client *client);
