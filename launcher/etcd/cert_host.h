/* SPDX-License-Identifier: Apache-2.0 */
/* For whom a server's certificate is, where TLS is Mbed TLS 2, which compares texts alone. */
#pragma once

#include <mbedtls/x509_crt.h>

/* Says in *flags (MBEDTLS_X509_BADCERT_CN_MISMATCH), where the library has said what it found for the text
 * of `host`, whether the certificate is for it by RFC 9525: an address by the same octets in an iPAddress, a
 * name by a dNSName. The subject counts for neither. Pure. */
void cert_host_check(const mbedtls_x509_crt *cert, const char *host, uint32_t *flags);
