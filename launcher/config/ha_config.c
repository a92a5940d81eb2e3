/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/ha_config.h"

#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"

static int choose_program(char *dst, size_t size, const struct rdzv_target *to,
                          const char *name, const char *variable, const char *package,
                          struct ctrun_error *err)
{
    const char *given = ct_env_find(to->env, variable);
    const bool is_given = given && *given;

    if (is_given && *given != '/')
        return ct_fail(err, CTRUN_E_USAGE, "%s=%s: give the whole path", variable,
                       given);
    if (ct_env_find_program(dst, size, to->env, is_given ? given : name))
        return 0;
    if (is_given)
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "--ha: %s=%s cannot be executed on %s",
                       variable, given, to->run->host);
    return ct_fail(err, CTRUN_E_UNSUPPORTED,
                   "--ha: the program %s is not in PATH here; install it on every node "
                   "(Debian: apt install %s) or name it in %s",
                   name, package, variable);
}

static int check(const struct rdzv_target *to, struct ctrun_error *err)
{
    if (to->rdzv->backend == CONFIG_ETCD)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--ha: --rdzv-backend=etcd survives the loss of any node "
                       "already; leave --ha out");
    if (to->run->nodes.max < to->rdzv->ha.nodes)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--ha=%d: %d nodes at least are needed, and --nnodes allows %d",
                       to->rdzv->ha.nodes, to->rdzv->ha.nodes, to->run->nodes.max);
    if (to->rdzv->backend != CONFIG_C10D)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--ha: works with --rdzv-backend=c10d alone: give "
                       "--rdzv-backend=c10d --rdzv-endpoint=HOST:PORT");
    return 0;
}

int ha_config_resolve(const struct rdzv_target *to, const struct options *options,
                      struct ctrun_error *err)
{
    struct config_ha *ha = &to->rdzv->ha;
    uint64_t nodes;
    int rc;

    if (!option_has_text(options, OPTION_HA) ||
        strcmp(option_text(options, OPTION_HA), "0") == 0)
        return 0;
    if (ct_parse_u64(option_text(options, OPTION_HA), 3, 5, &nodes) < 0 || nodes == 4)
        return ct_fail(err, CTRUN_E_USAGE, "--ha=%.20s: 3 or 5 members are possible",
                       option_text(options, OPTION_HA));
    ha->nodes = (int)nodes;
    if ((rc = check(to, err)) < 0 ||
        (rc = choose_program(ha->etcd, sizeof ha->etcd, to, "etcd", HA_ENV_ETCD,
                             "etcd-server", err)) < 0)
        return rc;
    return choose_program(ha->openssl, sizeof ha->openssl, to, "openssl",
                          HA_ENV_OPENSSL, "openssl", err);
}
