/* SPDX-License-Identifier: Apache-2.0 */
/* --rdzv-conf: "k=v,k=v". A key is checked when it is used: existing scripts have keys of
 * other backends, and values with stray quotes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"

enum {
    RDZV_CONF_MAX = 64,
    RDZV_CONF_KEY_MAX = 64,
    RDZV_CONF_VALUE_MAX = 256
};

struct rdzv_conf {
    int count;
    struct {
        char key[RDZV_CONF_KEY_MAX];
        char value[RDZV_CONF_VALUE_MAX];
    } items[RDZV_CONF_MAX];
};

/* 0, or -EINVAL: an item without key or value. The last of equal keys wins. */
int rdzv_conf_parse(const char *text, struct rdzv_conf *out, struct ctrun_error *err);

/* Refuses the names of torchrun's own options, as torchrun does (-EINVAL). Warns of keys that no
 * backend has, and names the nearest key that a backend has. */
int rdzv_conf_check(const struct rdzv_conf *conf, struct ctrun_error *err);

/* The value, borrowed; NULL when the key is absent. */
const char *rdzv_conf_get(const struct rdzv_conf *conf, const char *key);
/* These do not change *out when the key is absent. 1 when the key is there, 0 when not,
 * -EINVAL. */
int rdzv_conf_get_seconds(const struct rdzv_conf *conf, const char *key,
                          uint64_t *out_ms, struct ctrun_error *err);
int rdzv_conf_get_int(const struct rdzv_conf *conf, const char *key, int64_t *out,
                      struct ctrun_error *err);
int rdzv_conf_get_bool(const struct rdzv_conf *conf, const char *key, bool *out,
                       struct ctrun_error *err);
