/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl over Mbed TLS 2 as a part of this program (CTRUN_STATIC with CURL_ARCHIVES). */
#include <mbedtls/ssl.h>

#include "launcher/etcd/cert_host.h"
#include "launcher/etcd/http_api.h"

int http_api_get(struct http_api *out, struct ctrun_error *err)
{
    (void)err;
#define HTTP_TAKE(name) out->name##_fn = &(name);
    HTTP_FUNCTIONS(HTTP_TAKE)
#undef HTTP_TAKE
    return 0;
}

/* Called for each certificate of the chain; depth 0 is the server's own. */
static int on_verify(void *host, mbedtls_x509_crt *cert, int depth, uint32_t *flags)
{
    if (depth == 0)
        cert_host_check(cert, host, flags);
    return 0;
}

static CURLcode on_tls(CURL *easy, void *config, void *host)
{
    (void)easy;
    mbedtls_ssl_conf_verify(config, on_verify, host);
    return CURLE_OK;
}

void http_api_check_addresses(const struct http_api *api, CURL *easy, const char *host)
{
    api->curl_easy_setopt_fn(easy, CURLOPT_SSL_CTX_FUNCTION, on_tls);
    api->curl_easy_setopt_fn(easy, CURLOPT_SSL_CTX_DATA, host);
}
