/* SPDX-License-Identifier: Apache-2.0 */
/* The interface by which this node's workers reach the others: for libraries that would otherwise
 * guess docker0 or loopback.
 *
 * NCCL and gloo are told the interface of the connection that proved that group rank 0 is
 * reachable, unless the user has set their variable. */
#pragma once

#include <net/if.h>

#include "launcher/config/config.h"
#include "worker_sdk/base/env.h"

struct route {
    char nic[IF_NAMESIZE]; /* empty: not known, or there is one host only */
    char addr[CT_ADDR_TEXT_MAX];
    bool is_v6_beside_v4; /* the interface has v4 too, which may lead nowhere */
};

/* `local` is an address of this machine; NULL: there is no route. */
void route_learn(struct route *route, const struct ct_addr *local);
/* Sets NCCL_SOCKET_IFNAME, NCCL_SOCKET_FAMILY and GLOO_SOCKET_IFNAME where they are missing.
 * 0 or -ENOMEM. */
int route_set_env(struct ct_env *env, const struct route *route);
/* "using eth0 10.77.0.12 for rendezvous, NCCL, Gloo"; false when there is nothing to print. */
bool route_format(char *dst, size_t size, const struct route *route,
                  const struct config *config);
