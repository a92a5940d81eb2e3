/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/etcd_config.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/base/whole_file.h"

/* ---- Endpoints ----------------------------------------------------------------------- */

/* http:// and https:// in front are what etcdctl's users type. */
static const char *strip_scheme(const char *text, int *is_tls)
{
    static const char plain[] = "http://", tls[] = "https://";

    if (ct_starts_with(text, plain)) {
        *is_tls = 0;
        return text + sizeof plain - 1;
    }
    if (ct_starts_with(text, tls)) {
        *is_tls = 1;
        return text + sizeof tls - 1;
    }
    return text;
}

static int add_endpoint(struct etcd_config *out, const char *field, size_t length,
                        int *is_tls, struct ctrun_error *err)
{
    struct ct_endpoint *endpoint = &out->endpoints[out->endpoint_count];
    char text[CT_HOST_MAX + 32];
    const char *at = memrchr(field, '@', length);
    int rc;

    if (out->endpoint_count == ETCD_ENDPOINTS_MAX)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-endpoint: more than %d members of etcd",
                       ETCD_ENDPOINTS_MAX);
    if (at)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "--rdzv-endpoint: ...%.*s: every user of this machine can read a "
            "command line; use --rdzv-conf=user=NAME,password_file=PATH",
            (int)(field + length - at), at);
    if (ct_format(text, sizeof text, "%.*s", (int)length, field) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "--rdzv-endpoint: '%.40s...' is too long",
                       text);
    if (length > 0 && text[length - 1] == '/')
        text[length - 1] = '\0';
    rc = ct_endpoint_parse_typed(strip_scheme(text, is_tls), endpoint, err);
    if (rc < 0)
        return rc;
    if (endpoint->port == 0)
        return ct_fail(err, CTRUN_E_USAGE, "--rdzv-endpoint=%.*s: no etcd has port 0",
                       (int)length, field);
    if (length > 0 && !endpoint->host[0])
        return ct_fail(err, -EINVAL,
                       "--rdzv-endpoint=%.*s: there is no host; is a variable of the "
                       "shell empty?",
                       (int)length, field);
    if (!endpoint->host[0])
        (void)ct_copy(endpoint->host, sizeof endpoint->host, "localhost");
    if (endpoint->port < 0)
        endpoint->port = ETCD_PORT;
    out->endpoint_count++;
    return 0;
}

static int read_endpoints(struct etcd_config *out, const char *text, int *is_tls,
                          struct ctrun_error *err)
{
    const char *rest = text;
    const char *field;
    size_t length;
    int rc;

    while ((field = ct_next_field(&rest, ',', &length)))
        if (length > 0 && (rc = add_endpoint(out, field, length, is_tls, err)) < 0)
            return rc;
    return out->endpoint_count > 0 ? 0 : add_endpoint(out, "", 0, is_tls, err);
}

/* ---- Files and secrets --------------------------------------------------------------- */

/* The TLS library would wait for a writer of a pipe, and read a file of any size. NULL: it may read this one. */
static const char *find_fault(const char *path)
{
    struct stat info;

    if (access(path, R_OK) < 0 || stat(path, &info) < 0)
        return strerror(errno);
    if (!S_ISREG(info.st_mode))
        return S_ISDIR(info.st_mode) ? strerror(EISDIR) : "no regular file";
    return info.st_size > ETCD_TLS_FILE_MAX_BYTES ? "more than 16 MiB" : NULL;
}

/* The value of the first of `names` that is given. */
static int read_file_name(char *dst, const struct rdzv_conf *conf,
                          const char *const *names, struct ctrun_error *err)
{
    for (; *names; names++) {
        const char *value = rdzv_conf_get(conf, *names);
        const char *fault;

        if (!value)
            continue;
        if ((fault = find_fault(value)))
            return ct_fail(err, CTRUN_E_USAGE, "--rdzv-conf: %s=%s: %s", *names, value,
                           fault);
        return ct_copy(dst, RDZV_CONF_VALUE_MAX, value);
    }
    return 0;
}

static int read_files(struct etcd_config *out, const struct rdzv_conf *conf,
                      struct ctrun_error *err)
{
    static const char *const ca[] = {"cacert", "ca_cert", NULL};
    static const char *const cert[] = {"cert", "ssl_cert", NULL};
    static const char *const key[] = {"key", "ssl_cert_key", NULL};
    int rc;

    if ((rc = read_file_name(out->ca_file, conf, ca, err)) < 0 ||
        (rc = read_file_name(out->cert_file, conf, cert, err)) < 0 ||
        (rc = read_file_name(out->key_file, conf, key, err)) < 0)
        return rc;
    if (!out->cert_file[0] != !out->key_file[0])
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-conf: a client certificate is two files: give cert "
                       "and key");
    return 0;
}

/* The first line of the file. */
static int read_password_file(char *dst, const char *path, struct ctrun_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const ssize_t got = fd < 0
                            ? -errno
                            : ct_read_all_in(fd, dst, ETCD_SECRET_MAX, CT_PIPE_WAIT_MS);
    size_t length;

    if (fd >= 0)
        close(fd);
    if (got < 0)
        return ct_fail(err, CTRUN_E_USAGE, "--rdzv-conf: password_file=%s: %s", path,
                       ct_read_all_fault(got));
    if (got == ETCD_SECRET_MAX)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-conf: password_file=%s: more than %d bytes", path,
                       ETCD_SECRET_MAX - 1);
    dst[got] = '\0';
    length = strcspn(dst, "\r\n");
    dst[length] = '\0';
    return 0;
}

static int read_login(struct etcd_config *out, const struct rdzv_conf *conf,
                      const char *user, const char *password, struct ctrun_error *err)
{
    const char *name = rdzv_conf_get(conf, "user");
    const char *path = rdzv_conf_get(conf, "password_file");

    if (rdzv_conf_get(conf, "password"))
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-conf: password=...: every user of this machine can read "
                       "a command line; use password_file=PATH or CTRUN_ETCD_PASSWORD");
    if (!name)
        name = user ? user : "";
    if (ct_copy(out->user, sizeof out->user, name) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "etcd user '%.40s...': too long", name);
    if (path)
        return read_password_file(out->password, path, err);
    if (password && ct_copy(out->password, sizeof out->password, password) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "CTRUN_ETCD_PASSWORD: too long");
    return 0;
}

/* ---- The whole ----------------------------------------------------------------------- */

static int read_prefix(struct etcd_config *out, const struct rdzv_conf *conf,
                       struct ctrun_error *err)
{
    const char *text = rdzv_conf_get(conf, "etcd_prefix");
    size_t length;

    if (ct_format(out->prefix, sizeof out->prefix, "%s%s",
                  text && *text != '/' ? "/" : "", text ? text : "/ctrun") < 0)
        return ct_fail(err, CTRUN_E_USAGE, "--rdzv-conf: etcd_prefix is too long");
    for (length = strlen(out->prefix); length > 0 && out->prefix[length - 1] == '/';)
        out->prefix[--length] = '\0';
    return 0;
}

static int read_ttl(struct etcd_config *out, const struct rdzv_conf *conf,
                    struct ctrun_error *err)
{
    out->lease_ttl_s = ETCD_LEASE_TTL_S;
    if (rdzv_conf_get_int(conf, "lease_ttl", &out->lease_ttl_s, err) < 0)
        return -EINVAL;
    if (out->lease_ttl_s < 2 || out->lease_ttl_s > ETCD_LEASE_TTL_MAX_S)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-conf: lease_ttl=%lld: 2 to %d "
                       "seconds are possible",
                       (long long)out->lease_ttl_s, ETCD_LEASE_TTL_MAX_S);
    return 0;
}

static int read_protocol(struct etcd_config *out, const struct rdzv_conf *conf,
                         int scheme, struct ctrun_error *err)
{
    const char *protocol = rdzv_conf_get(conf, "protocol");

    if (protocol && strcmp(protocol, "http") != 0 && strcmp(protocol, "https") != 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-conf: protocol=%s: must be http or https", protocol);
    out->is_tls = protocol ? strcmp(protocol, "https") == 0 : scheme == 1;
    if (!out->is_tls && (out->ca_file[0] || out->cert_file[0]))
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-conf: certificates are for protocol=https");
    return 0;
}

int etcd_config_read(struct etcd_config *out, const char *endpoints,
                     const struct rdzv_conf *conf, const char *user,
                     const char *password, struct ctrun_error *err)
{
    int scheme = -1;
    int rc;

    *out = (struct etcd_config){0};
    if ((rc = read_endpoints(out, endpoints, &scheme, err)) < 0 ||
        (rc = read_files(out, conf, err)) < 0 ||
        (rc = read_protocol(out, conf, scheme, err)) < 0 ||
        (rc = read_login(out, conf, user, password, err)) < 0 ||
        (rc = read_prefix(out, conf, err)) < 0)
        return rc;
    out->timeout_ms = ETCD_TIMEOUT_MS;
    if (rdzv_conf_get_seconds(conf, "read_timeout", &out->timeout_ms, err) < 0)
        return -EINVAL;
    return read_ttl(out, conf, err);
}

void etcd_config_wipe(struct etcd_config *config)
{
    explicit_bzero(config->password, sizeof config->password);
}

void etcd_config_format(char *dst, size_t size, const struct etcd_config *config)
{
    *dst = '\0';
    for (int i = 0; i < config->endpoint_count; i++) {
        const struct ct_endpoint *at = &config->endpoints[i];
        const bool is_v6 = strchr(at->host, ':');

        (void)ct_append_item(dst, size, ", ", "%s%s%s%s:%d",
                             i == 0 && config->is_tls ? "https://" : "",
                             is_v6 ? "[" : "", at->host, is_v6 ? "]" : "", at->port);
    }
}
