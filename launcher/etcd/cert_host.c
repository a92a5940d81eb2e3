/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/etcd/cert_host.h"

#include <arpa/inet.h>
#include <mbedtls/oid.h>
#include <stdbool.h>
#include <string.h>

enum {
    SAN_IP_ADDRESS = MBEDTLS_ASN1_CONTEXT_SPECIFIC | 7 /* RFC 5280, 4.2.1.6 */
};

/* As an iPAddress has it: 4 octets or 16. 0: it is no address, but a name. */
static size_t parse_address(const char *host,
                            unsigned char out[sizeof(struct in6_addr)])
{
    return inet_pton(AF_INET, host, out) == 1    ? sizeof(struct in_addr)
           : inet_pton(AF_INET6, host, out) == 1 ? sizeof(struct in6_addr)
                                                 : 0;
}

/* An IPv4 address and the IPv6 address that it is mapped to are different. */
static bool names_address(const mbedtls_x509_crt *cert, const unsigned char *address,
                          size_t length)
{
    for (const mbedtls_x509_sequence *name = &cert->subject_alt_names; name;
         name = name->next)
        if (name->buf.tag == SAN_IP_ADDRESS && name->buf.len == length &&
            memcmp(name->buf.p, address, length) == 0)
            return true;
    return false;
}

/* The library compares an address as if it were a name, and a certificate without names by its
 * subject: both are corrected here. */
void cert_host_check(const mbedtls_x509_crt *cert, const char *host, uint32_t *flags)
{
    unsigned char address[sizeof(struct in6_addr)];
    const size_t length = parse_address(host, address);
    const uint32_t mismatch = MBEDTLS_X509_BADCERT_CN_MISMATCH;

    if (length > 0)
        *flags = names_address(cert, address, length) ? *flags & ~mismatch
                                                      : *flags | mismatch;
    else if (!(cert->ext_types & MBEDTLS_X509_EXT_SUBJECT_ALT_NAME))
        *flags |= mismatch;
}
