/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a server's certificate is for the host that we asked for, with Mbed TLS 2, which only
 * compares texts. */
#pragma once

#include <mbedtls/x509_crt.h>

/* Corrects MBEDTLS_X509_BADCERT_CN_MISMATCH in *flags, which the library has set by the text of
 * `host`: it is clear when the certificate is for `host` by RFC 9525: an address by the same octets
 * in an iPAddress, a name by a dNSName. The subject counts for neither. Pure. */
void cert_host_check(const mbedtls_x509_crt *cert, const char *host, uint32_t *flags);
