/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl over Mbed TLS 2 as a part of this program (CTRUN_STATIC with CURL_ARCHIVES). That TLS library
 * compares names alone; an address that the certificate names is found here. */
#include <arpa/inet.h>
#include <mbedtls/ssl.h>
#include <string.h>

#include "launcher/etcd/http_api.h"

enum {
    SAN_IP_ADDRESS = MBEDTLS_ASN1_CONTEXT_SPECIFIC | 7 /* RFC 5280, 4.2.1.6 */
};

int http_api_get(struct http_api *out, struct ctrun_error *err)
{
    (void)err;
#define HTTP_TAKE(name) out->name##_fn = &(name);
    HTTP_FUNCTIONS(HTTP_TAKE)
#undef HTTP_TAKE
    return 0;
}

/* Whether the certificate is for the address that `host` is the text of. */
static bool names_address(const mbedtls_x509_crt *cert, const char *host)
{
    unsigned char addr[sizeof(struct in6_addr)];
    const size_t length = inet_pton(AF_INET, host, addr) == 1 ? sizeof(struct in_addr)
                          : inet_pton(AF_INET6, host, addr) == 1 ? sizeof addr
                                                                 : 0;

    for (const mbedtls_x509_sequence *name = &cert->subject_alt_names; length && name;
         name = name->next)
        if (name->buf.tag == SAN_IP_ADDRESS && name->buf.len == length &&
            memcmp(name->buf.p, addr, length) == 0)
            return true;
    return false;
}

/* Called for each certificate of the chain; depth 0 is the server's own. */
static int on_verify(void *host, mbedtls_x509_crt *cert, int depth, uint32_t *flags)
{
    if (depth == 0 && *flags & MBEDTLS_X509_BADCERT_CN_MISMATCH &&
        names_address(cert, host))
        *flags &= ~(uint32_t)MBEDTLS_X509_BADCERT_CN_MISMATCH;
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
