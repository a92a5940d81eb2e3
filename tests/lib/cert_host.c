/* SPDX-License-Identifier: Apache-2.0 */
/* cert_host CERTIFICATE HOST...: prints for each host whether that self-signed certificate is for
 * it, or that the certificate cannot be read. */
#include <mbedtls/x509_crt.h>
#include <stdio.h>

#include "launcher/etcd/cert_host.h"

static int on_verify(void *host, mbedtls_x509_crt *cert, int depth, uint32_t *flags)
{
    if (depth == 0)
        cert_host_check(cert, host, flags);
    return 0;
}

int main(int argc, char **argv)
{
    mbedtls_x509_crt cert;
    uint32_t flags;

    mbedtls_x509_crt_init(&cert);
    if (argc < 2 || mbedtls_x509_crt_parse_file(&cert, argv[1]) != 0) {
        puts("unreadable");
        return 0;
    }
    for (int i = 2; i < argc; i++)
        puts(mbedtls_x509_crt_verify(&cert, &cert, NULL, argv[i], &flags, on_verify,
                                     argv[i]) == 0
                 ? "yes"
             : flags == MBEDTLS_X509_BADCERT_CN_MISMATCH ? "no"
                                                         : "other");
    mbedtls_x509_crt_free(&cert);
    return 0;
}
