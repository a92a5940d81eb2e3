/* SPDX-License-Identifier: Apache-2.0 */
/* How to reach etcd: --rdzv-endpoint, --rdzv-conf and two variables, read. Opens nothing.
 *
 *     --rdzv-endpoint=etcd1:2379,etcd2,etcd3:2379      port 2379 where none is given
 *     --rdzv-conf=protocol=https,cacert=ca.pem,cert=me.pem,key=me.key,user=ctrun,
 *                 password_file=pw,etcd_prefix=/ctrun,lease_ttl=3
 *
 * torchrun spells the TLS files in two ways (etcd: cert, key, cacert; etcd-v2: ssl_cert,
 * ssl_cert_key, ca_cert); both are taken. A password does not belong on a command line, where
 * everybody sees it: it comes from a file or from CTRUN_ETCD_PASSWORD, which workers do
 * not inherit. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "launcher/options/rdzv_conf.h"
#include "worker_sdk/net/addr.h"

#define ETCD_ENV_USER     "CTRUN_ETCD_USER"
#define ETCD_ENV_PASSWORD "CTRUN_ETCD_PASSWORD"

enum {
    ETCD_ENDPOINTS_MAX = 16,
    ETCD_PORT = 2379,
    ETCD_SECRET_MAX = 256,
    ETCD_TLS_FILE_MAX_BYTES = 16 << 20, /* the system's authorities have 0.2 MiB */
    ETCD_PREFIX_MAX = 256,
    ETCD_LEASE_TTL_S = 3, /* how long a dead server stays elected */
    ETCD_LEASE_TTL_MAX_S = 3600,
    ETCD_TIMEOUT_MS = 60000, /* torchrun's read_timeout */
};

struct etcd_config {
    struct ct_endpoint endpoints[ETCD_ENDPOINTS_MAX];
    int endpoint_count;
    bool is_tls;
    char ca_file[RDZV_CONF_VALUE_MAX]; /* empty: the system's */
    char cert_file[RDZV_CONF_VALUE_MAX];
    char key_file[RDZV_CONF_VALUE_MAX];
    char user[RDZV_CONF_VALUE_MAX]; /* empty: no login */
    char password[ETCD_SECRET_MAX];
    char prefix[ETCD_PREFIX_MAX]; /* "/ctrun": no slash at the end */
    int64_t lease_ttl_s;
    uint64_t timeout_ms; /* for the first answer */
};

/* user and password are CTRUN_ETCD_USER and CTRUN_ETCD_PASSWORD, may be NULL; those of `conf`
 * win. 0, -EINVAL, CTRUN_E_USAGE. */
int etcd_config_read(struct etcd_config *out, const char *endpoints,
                     const struct rdzv_conf *conf, const char *user,
                     const char *password, struct ctrun_error *err);
/* Erases the password from memory. */
void etcd_config_wipe(struct etcd_config *config);
/* "https://etcd1:2379, etcd2:2379" for people. */
void etcd_config_format(char *dst, size_t size, const struct etcd_config *config);
