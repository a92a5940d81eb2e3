/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl as a shared library, loaded when it is asked for. It stays loaded. */
#include <dlfcn.h>

#include "launcher/etcd/http_api.h"
#include "worker_sdk/base/symbol.h"

int http_api_get(struct http_api *out, struct ctrun_error *err)
{
    void *library = NULL;

    if (!(library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL)) &&
        !(library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL)))
        return ct_fail(err, CTRUN_E_USAGE,
                       "libcurl cannot be loaded (%s); on Debian: "
                       "apt install libcurl4",
                       dlerror());
#define HTTP_FIND(name)                                                                \
    if (!ct_find_symbol(library, #name, &out->name##_fn))                              \
        return ct_fail(err, CTRUN_E_USAGE,                                             \
                       "libcurl has no " #name ": version 7.68 or newer is needed");
    HTTP_FUNCTIONS(HTTP_FIND)
#undef HTTP_FIND
    return 0;
}

void http_api_check_addresses(const struct http_api *api, CURL *easy, const char *host)
{
    (void)api; /* the TLS libraries of distributions do so by themselves */
    (void)easy;
    (void)host;
}
