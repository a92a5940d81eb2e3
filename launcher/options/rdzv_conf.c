/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/rdzv_conf.h"

#include <errno.h>
#include <strings.h>

#include "worker_sdk/base/log.h"
#include "worker_sdk/base/nearest.h"
#include "worker_sdk/base/str.h"

enum {
    SECONDS_MAX = 10 * 365 * 24 * 3600, /* so that milliseconds never overflow */
};

/* The messages are torchrun's, because scripts may look for them. Of a key that is given twice the
 * last value counts, as in torchrun's dictionary. */
static int add_item(struct rdzv_conf *out, const char *item, size_t length,
                    struct ctrun_error *err)
{
    const char *equals = memchr(item, '=', length);
    size_t key_length = equals ? (size_t)(equals - item) : length;
    size_t value_length = equals ? length - key_length - 1 : 0;
    const char *key = ct_trim(item, &key_length);
    const char *value = equals ? ct_trim(equals + 1, &value_length) : "";
    int at = 0;

    if (!key_length)
        return ct_fail(
            err, -EINVAL,
            "--rdzv-conf: The rendezvous configuration string must be in format "
            "<key1>=<value1>,...,<keyN>=<valueN>.");
    if (!value_length)
        return ct_fail(
            err, -EINVAL,
            "--rdzv-conf: The rendezvous configuration option '%.*s' must have a "
            "value specified.",
            (int)key_length, key);
    if (key_length >= RDZV_CONF_KEY_MAX || value_length >= RDZV_CONF_VALUE_MAX)
        return ct_fail(err, -EINVAL, "--rdzv-conf: '%.40s...' is too long", key);
    while (at < out->count && (strncmp(out->items[at].key, key, key_length) != 0 ||
                               out->items[at].key[key_length]))
        at++;
    if (at == RDZV_CONF_MAX)
        return ct_fail(err, -EINVAL, "--rdzv-conf: more than %d options",
                       RDZV_CONF_MAX);
    (void)ct_format(out->items[at].key, RDZV_CONF_KEY_MAX, "%.*s", (int)key_length,
                    key);
    (void)ct_format(out->items[at].value, RDZV_CONF_VALUE_MAX, "%.*s",
                    (int)value_length, value);
    out->count += at == out->count;
    return 0;
}

int rdzv_conf_parse(const char *text, struct rdzv_conf *out, struct ctrun_error *err)
{
    size_t length = strlen(text);
    const char *rest = ct_trim(text, &length);
    int rc = 0;

    out->count = 0;
    if (!length)
        return 0;
    for (const char *item; rc == 0 && (item = ct_next_field(&rest, ',', &length));)
        rc = add_item(out, item, length, err);
    return rc;
}

static const char *nearest_key(const char *key)
{
    static const char *const keys[] = {"join_timeout",
                                       "last_call_timeout",
                                       "close_timeout",
                                       "heartbeat_timeout",
                                       "keep_alive_interval",
                                       "keep_alive_max_attempt",
                                       "cas_backoff_max_seconds",
                                       "read_timeout",
                                       "is_host",
                                       "store_type",
                                       "use_libuv",
                                       "protocol",
                                       "ssl_cert",
                                       "ssl_cert_key",
                                       "ca_cert",
                                       "cert",
                                       "key",
                                       "cacert",
                                       "etcd_prefix",
                                       "timeout",
                                       "rank",
                                       "user",
                                       "password",
                                       "password_file",
                                       "lease_ttl"};
    struct ct_nearest near = ct_nearest_to(key);

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ct_nearest_offer(&near, keys[i]);
    return near.word;
}

int rdzv_conf_check(const struct rdzv_conf *conf, struct ctrun_error *err)
{
    static const char *const options[] = {"backend",   "endpoint",  "run_id",
                                          "min_nodes", "max_nodes", "local_addr"};

    for (int at = 0; at < conf->count; at++) {
        const char *key = conf->items[at].key;
        const char *near = nearest_key(key);

        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
            if (strcmp(key, options[i]) == 0)
                return ct_fail(
                    err, -EINVAL,
                    "--rdzv-conf: %s is not a key: there is an option of ctrun for it",
                    key);
        if (!near)
            ct_warn("--rdzv-conf: no backend has a key '%s'", key);
        else if (strcmp(near, key) != 0)
            ct_warn("--rdzv-conf: no backend has a key '%s'; did you mean %s?", key,
                    near);
    }
    return 0;
}

const char *rdzv_conf_get(const struct rdzv_conf *conf, const char *key)
{
    for (int i = 0; i < conf->count; i++)
        if (strcmp(conf->items[i].key, key) == 0)
            return conf->items[i].value;
    return NULL;
}

int rdzv_conf_get_int(const struct rdzv_conf *conf, const char *key, int64_t *out,
                      struct ctrun_error *err)
{
    const char *value = rdzv_conf_get(conf, key);

    if (!value)
        return 0;
    if (ct_parse_python_int(value, out) < 0)
        return ct_fail(err, -EINVAL,
                       "--rdzv-conf: The rendezvous configuration option '%s' does not "
                       "represent a valid integer value. (%s)",
                       key, value);
    return 1;
}

int rdzv_conf_get_seconds(const struct rdzv_conf *conf, const char *key,
                          uint64_t *out_ms, struct ctrun_error *err)
{
    int64_t seconds;
    int rc = rdzv_conf_get_int(conf, key, &seconds, err);

    if (rc <= 0)
        return rc;
    if (seconds <= 0 || seconds > SECONDS_MAX)
        return ct_fail(err, -EINVAL, "--rdzv-conf: %s=%lld must be 1 to %d seconds",
                       key, (long long)seconds, SECONDS_MAX);
    *out_ms = (uint64_t)seconds * 1000;
    return 1;
}

int rdzv_conf_get_bool(const struct rdzv_conf *conf, const char *key, bool *out,
                       struct ctrun_error *err)
{
    static const char *const words[][5] = {{"0", "f", "false", "n", "no"},
                                           {"1", "t", "true", "y", "yes"}};
    const char *value = rdzv_conf_get(conf, key);

    if (!value)
        return 0;
    for (int truth = 0; truth < 2; truth++) {
        for (int i = 0; i < 5; i++) {
            if (strcasecmp(value, words[truth][i]) == 0) {
                *out = truth == 1;
                return 1;
            }
        }
    }
    return ct_fail(
        err, -EINVAL,
        "--rdzv-conf: The rendezvous configuration option '%s' does not represent a "
        "valid boolean value. (%s)",
        key, value);
}
