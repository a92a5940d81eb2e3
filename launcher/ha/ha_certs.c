/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ha/ha_certs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker_sdk/net/addr.h"
#include "worker_sdk/wire/text_code.h"
#include "worker_sdk/base/str.h"

/* Only `openssl ca` accepts a start date; it needs a database. */
static const char config[] =
    "[req]\nprompt=no\ndistinguished_name=dn\n"
    "[dn]\nO=ctrun\n"
    "[ca]\ndefault_ca=d\n"
    "[d]\nnew_certs_dir=.\ndatabase=index\nserial=serial\ndefault_md=default\n"
    "policy=p\nunique_subject=no\nemail_in_dn=no\n"
    "[p]\norganizationName=supplied\n"
    "[ca_ext]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign\n"
    "subjectKeyIdentifier=hash\n"
    "[me_ext]\nbasicConstraints=critical,CA:FALSE\n"
    "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n"
    "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    "subjectAltName=IP:%s\n";

static int write_file(const char *name, const void *data, size_t length)
{
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                        0600);
    const ssize_t n = fd < 0 ? -1 : write(fd, data, length);
    const int rc = n == (ssize_t)length ? 0 : fd < 0 || n < 0 ? -errno : -EIO;

    if (fd >= 0)
        close(fd);
    return rc;
}

/* A private key of P-256, which every TLS library knows, is a number below the group's order: any 255
 * bits. This is PKCS #8 around them. */
static int write_key(const char *name, const uint8_t seed[HA_SECRET_BYTES])
{
    static const uint8_t head[] = {
        0x30, 0x41, 0x02, 0x01, 0x00,                                     /* version */
        0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, /* EC */
        0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07,       /* P-256 */
        0x04, 0x27, 0x30, 0x25, 0x02, 0x01, 0x01, 0x04, 0x20};
    uint8_t der[sizeof head + HA_SECRET_BYTES];
    struct ct_buf pem;
    int rc;

    memcpy(der, head, sizeof head);
    memcpy(der + sizeof head, seed, HA_SECRET_BYTES);
    der[sizeof head] &= 0x7f;
    ct_buf_init(&pem, 512);
    if ((rc = ct_buf_printf(&pem, "-----BEGIN PRIVATE KEY-----\n")) == 0 &&
        (rc = ct_base64_encode(&pem, der, sizeof der)) == 0 &&
        (rc = ct_buf_printf(&pem, "\n-----END PRIVATE KEY-----\n")) == 0)
        rc = write_file(name, ct_buf_data(&pem), ct_buf_length(&pem));
    explicit_bzero(der, sizeof der);
    ct_buf_deinit(&pem);
    return rc;
}

/* Runs the program and waits for its end. The program's errors go to the file `log`. */
static int run(const char *program, const char *const *argv)
{
    const pid_t pid = fork();
    int status = 0;

    if (pid == 0) {
        const int null = open("/dev/null", O_RDWR);
        const int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);

        dup2(null, 0);
        dup2(null, 1);
        dup2(log < 0 ? null : log, 2);
        execv(program, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    if (pid < 0)
        return -errno;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

/* NAME.pem, signed by the CA with the extensions of that section. */
static int sign(const char *openssl, const char *name, bool is_ca)
{
    char key[16], csr[16], pem[16];
    const char *const ask[] = {openssl,   "req",    "-new",
                               "-batch",  "-subj",  is_ca ? "/O=ctrun CA" : "/O=ctrun",
                               "-config", "config", "-key",
                               key,       "-out",   csr,
                               NULL};
    const char *const answer[] = {openssl,
                                  "ca",
                                  "-batch",
                                  "-notext",
                                  "-config",
                                  "config",
                                  "-keyfile",
                                  "ca.key",
                                  "-in",
                                  csr,
                                  "-out",
                                  pem,
                                  "-startdate",
                                  "20200101000000Z",
                                  "-enddate",
                                  "20991231235959Z",
                                  "-extensions",
                                  is_ca ? "ca_ext" : "me_ext",
                                  is_ca ? "-selfsign" : "-cert",
                                  is_ca ? NULL : "ca.pem",
                                  NULL};
    int rc;

    (void)ct_format(key, sizeof key, "%s.key", name);
    (void)ct_format(csr, sizeof csr, "%s.csr", name);
    (void)ct_format(pem, sizeof pem, "%s.pem", name);
    rc = run(openssl, ask);
    return rc < 0 ? rc : run(openssl, answer);
}

static int write_config(const char *addr)
{
    char text[sizeof config + CT_ADDR_TEXT_MAX];
    int rc = ct_format(text, sizeof text, config, addr);

    return rc < 0 ? rc : write_file("config", text, strlen(text));
}

/* The CA's certificate differs between nodes in its signature alone; each has another number for its own. */
static int write_serial(const uint8_t seed[HA_SECRET_BYTES])
{
    char text[40];

    (void)ct_format(text, sizeof text, "7F%02X%02X%02X%02X%02X%02X%02X\n", seed[0],
                    seed[1], seed[2], seed[3], seed[4], seed[5], seed[6]);
    return write_file("serial", text, strlen(text));
}

int ha_certs_make(const char *openssl, const uint8_t secret[HA_SECRET_BYTES],
                  const char *addr, struct ctrun_error *err)
{
    uint8_t own[HA_SECRET_BYTES];
    int rc = -EIO;

    if (getrandom(own, sizeof own, 0) == (ssize_t)sizeof own &&
        (rc = write_config(addr)) == 0 && (rc = write_file("index", "", 0)) == 0 &&
        (rc = write_file("serial", "01\n", 3)) == 0 &&
        (rc = write_key("ca.key", secret)) == 0 &&
        (rc = write_key("me.key", own)) == 0 && (rc = sign(openssl, "ca", true)) == 0 &&
        (rc = write_serial(own)) == 0)
        rc = sign(openssl, "me", false);
    (void)unlink("ca.key");
    explicit_bzero(own, sizeof own);
    return rc < 0 ? ct_fail(err, rc, "%s cannot make certificates: %s", openssl,
                            rc == -EIO ? "it failed" : strerror(-rc))
                  : 0;
}
