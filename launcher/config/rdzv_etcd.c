/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/rdzv_etcd.h"

#include "launcher/options/rdzv_conf.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

bool rdzv_etcd_is_named(const char *backend)
{
    return strcmp(backend, "etcd") == 0 || strcmp(backend, "etcd-v2") == 0;
}

int rdzv_etcd_resolve(const struct rdzv_target *to, const struct options *options,
                      struct ctrun_error *err)
{
    const char *endpoints = option_text(options, OPTION_RDZV_ENDPOINT);
    struct rdzv_conf conf;
    int rc = rdzv_conf_parse(option_text(options, OPTION_RDZV_CONF), &conf, err);

    if (rc < 0 ||
        (rc = etcd_config_read(&to->rdzv->etcd, endpoints, &conf,
                               ct_env_find(to->env, ETCD_ENV_USER),
                               ct_env_find(to->env, ETCD_ENV_PASSWORD), err)) < 0)
        return rc;
    to->rdzv->endpoint = to->rdzv->etcd.endpoints[0];
    if (!option_has_text(options, OPTION_RDZV_ID) ||
        strchr(option_text(options, OPTION_RDZV_ID), '/'))
        return ct_fail(err, CTRUN_E_USAGE,
                       "--rdzv-id: with --rdzv-backend=etcd every job needs a name of "
                       "its own, without slashes: all jobs share that etcd");
    if (strcmp(option_text(options, OPTION_RDZV_BACKEND), "etcd-v2") == 0)
        ct_info("--rdzv-backend=etcd-v2: same as etcd; ctrun uses etcd's v3 protocol");
    return 0;
}
