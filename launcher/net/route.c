/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/net/route.h"

#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"

static const char nccl_nic[] = "NCCL_SOCKET_IFNAME";
static const char nccl_family[] = "NCCL_SOCKET_FAMILY";
static const char gloo_nic[] = "GLOO_SOCKET_IFNAME";

static bool has_v4(const char *nic)
{
    struct ct_nic all[CT_NICS_MAX];
    const int count = ct_nic_list(all, CT_NICS_MAX);

    for (int i = 0; i < count; i++)
        if (all[i].addr.any.sa_family == AF_INET && strcmp(all[i].name, nic) == 0)
            return true;
    return false;
}

static bool is_v4(const struct ct_addr *addr)
{
    return addr->any.sa_family == AF_INET || IN6_IS_ADDR_V4MAPPED(&addr->v6.sin6_addr);
}

void route_learn(struct route *route, const struct ct_addr *local)
{
    struct ct_nic nic;

    *route = (struct route){0};
    if (!local || !ct_nic_find(&nic, local) || nic.is_loopback)
        return;
    (void)ct_copy(route->nic, sizeof route->nic, nic.name); /* same size */
    ct_addr_format_host(route->addr, local);
    route->is_v6_beside_v4 = !is_v4(local) && has_v4(nic.name);
}

static int set_missing(struct ct_env *env, const char *name, const char *prefix,
                       const char *value)
{
    return ct_env_get(env, name) ? 0 : ct_env_setf(env, name, "%s%s", prefix, value);
}

int route_set_env(struct ct_env *env, const struct route *route)
{
    int rc;

    if (!route->nic[0])
        return 0;
    /* "=": this interface, not all whose names begin so. */
    if ((rc = set_missing(env, nccl_nic, "=", route->nic)) < 0 ||
        (rc = set_missing(env, gloo_nic, "", route->nic)) < 0)
        return rc;
    return route->is_v6_beside_v4 ? set_missing(env, nccl_family, "AF_", "INET6") : 0;
}

bool route_format(char *dst, size_t size, const struct route *route,
                  const struct config *config)
{
    if (!route->nic[0])
        return false;
    (void)ct_format(dst, size, "using %s %s for %s%s%s", route->nic, route->addr,
                    config->rdzv.net.count > 0 ? "workers" : "rendezvous",
                    ct_env_find(config->env, nccl_nic) ? "" : ", NCCL",
                    ct_env_find(config->env, gloo_nic) ? "" : ", Gloo");
    return true;
}
