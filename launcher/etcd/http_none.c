/* SPDX-License-Identifier: Apache-2.0 */
/* In place of http.c where ctrun was built without libcurl: every client is refused. */
#include "launcher/etcd/http.h"

#include <errno.h>

int http_client_open(struct http_client **out,
                     const struct http_client_options *options, struct ctrun_error *err)
{
    (void)out;
    (void)options;
    return ct_fail(err, CTRUN_E_USAGE,
                   "this ctrun was built without libcurl; build it with "
                   "libcurl4-openssl-dev 7.68 or newer (with CTRUN_STATIC: name "
                   "CURL_ARCHIVES), or use the wheel");
}

void http_client_close(struct http_client *client)
{
    (void)client;
}

int http_client_post(struct http_client *client, const struct http_request *request,
                     long *status, struct ctrun_error *err)
{
    (void)client;
    (void)request;
    *status = 0;
    return ct_fail(err, -ENOSYS, "no libcurl");
}

void http_client_wake(struct http_client *client)
{
    (void)client;
}

void http_client_rearm(struct http_client *client)
{
    (void)client;
}
