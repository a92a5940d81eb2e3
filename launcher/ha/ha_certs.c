/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ha/ha_certs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/kernel.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/wire/text_code.h"
#include "worker_sdk/base/str.h"

enum {
    OPENSSL_MS = 15000, /* four calls of it; the agent waits longer: ha_keeper.c */
    KILL_MS = 1000
};

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

/* True when the process has ended by then; it was not reaped. Without pidfds (Linux 5.2) there is no
 * limit. */
static bool has_ended(pid_t pid, uint64_t deadline_ms)
{
    struct pollfd ask = {.fd = ct_pidfd_open(pid), .events = POLLIN};
    int n = -1;

    if (ask.fd < 0)
        return true;
    do
        n = poll(&ask, 1, ct_left_ms(deadline_ms));
    while (n < 0 && errno == EINTR);
    close(ask.fd);
    return n != 0;
}

/* Kills the process if it does not end in time, and leaves it if not even that ends it. */
static int await_end(pid_t pid, uint64_t deadline_ms)
{
    int status = 0;

    if (!has_ended(pid, deadline_ms)) {
        (void)kill(pid, SIGKILL);
        if (has_ended(pid, ct_deadline_ms(KILL_MS)))
            (void)waitpid(pid, NULL, 0);
        return -ETIMEDOUT;
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EIO;
}

/* Runs the program and waits for its end. The program's errors go to the file `log`. */
static int run(const char *program, const char *const *argv, uint64_t deadline_ms)
{
    const pid_t pid = fork();

    if (pid == 0) {
        const int null = open("/dev/null", O_RDWR);
        const int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);

        dup2(null, 0);
        dup2(null, 1);
        dup2(log < 0 ? null : log, 2);
        execv(program, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid < 0 ? -errno : await_end(pid, deadline_ms);
}

/* NAME.pem, signed by the CA with the extensions of that section. */
static int sign(const char *openssl, const char *name, bool is_ca, uint64_t deadline_ms)
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
    rc = run(openssl, ask, deadline_ms);
    return rc < 0 ? rc : run(openssl, answer, deadline_ms);
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
    const uint64_t deadline_ms = ct_deadline_ms(OPENSSL_MS);
    uint8_t own[HA_SECRET_BYTES];
    int rc = -EIO;

    if (getrandom(own, sizeof own, 0) == (ssize_t)sizeof own &&
        (rc = write_config(addr)) == 0 && (rc = write_file("index", "", 0)) == 0 &&
        (rc = write_file("serial", "01\n", 3)) == 0 &&
        (rc = write_key("ca.key", secret)) == 0 &&
        (rc = write_key("me.key", own)) == 0 &&
        (rc = sign(openssl, "ca", true, deadline_ms)) == 0 &&
        (rc = write_serial(own)) == 0)
        rc = sign(openssl, "me", false, deadline_ms);
    (void)unlink("ca.key");
    explicit_bzero(own, sizeof own);
    return rc < 0 ? ct_fail(err, rc, "%s cannot make certificates: %s", openssl,
                            rc == -EIO         ? "it failed"
                            : rc == -ETIMEDOUT ? "it did not end in time"
                                               : strerror(-rc))
                  : 0;
}
