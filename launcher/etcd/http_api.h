/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of libcurl that http.c calls, loaded (http_loaded.c) or linked (http_linked.c), and what
 * differs between the two. */
#pragma once

#include <curl/curl.h>

#include "worker_sdk/base/error.h"

#define HTTP_FUNCTIONS(X)                                                              \
    X(curl_global_init)                                                                \
    X(curl_easy_init)                                                                  \
    X(curl_easy_setopt)                                                                \
    X(curl_easy_getinfo)                                                               \
    X(curl_easy_strerror)                                                              \
    X(curl_easy_cleanup)                                                               \
    X(curl_slist_append)                                                               \
    X(curl_slist_free_all)                                                             \
    X(curl_multi_init)                                                                 \
    X(curl_multi_add_handle)                                                           \
    X(curl_multi_remove_handle)                                                        \
    X(curl_multi_perform)                                                              \
    X(curl_multi_info_read)                                                            \
    X(curl_multi_poll)                                                                 \
    X(curl_multi_wakeup)                                                               \
    X(curl_multi_cleanup)

struct http_api {
#define HTTP_MEMBER(name) __typeof__(&(name)) name##_fn;
    HTTP_FUNCTIONS(HTTP_MEMBER)
#undef HTTP_MEMBER
};

/* Fills *out. 0, or CTRUN_E_USAGE: there is no libcurl, and err says what to do. */
int http_api_get(struct http_api *out, struct ctrun_error *err);
/* Allows a certificate to name the address in place of `host`, which is kept while easy
 * connects. */
void http_api_check_addresses(const struct http_api *api, CURL *easy, const char *host);
