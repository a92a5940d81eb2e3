/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/mesh_addr.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/comm/mesh.h"

static bool is_useful(const struct ct_addr *addr)
{
    /* A link-local address means nothing without an interface of ours. */
    return addr->any.sa_family != AF_INET6 ||
           !IN6_IS_ADDR_LINKLOCAL(&addr->v6.sin6_addr);
}

static int listen_on(int family)
{
    struct ct_addr any = {.any.sa_family = (sa_family_t)family};
    const int off = 0;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    any.length = family == AF_INET6 ? sizeof any.v6 : sizeof any.v4;
    if (family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off); /* comfort */
    if (bind(fd, &any.any, any.length) < 0 || listen(fd, SOMAXCONN) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

int ct_mesh_listen(int *out, struct ct_peer *self, struct ctrun_error *err)
{
    struct ct_addr local[4 * CT_ADDRS_MAX];
    struct ct_addr bound = {.length = sizeof bound.v6};
    bool has_v6 = true;
    int fd = listen_on(AF_INET6);
    int count;

    if (fd < 0) { /* a kernel without IPv6 */
        has_v6 = false;
        fd = listen_on(AF_INET);
    }
    if (fd < 0)
        return ct_fail(err, fd, "open group: listen: %s", strerror(-fd));
    (void)getsockname(fd, &bound.any, &bound.length);
    count = ct_addr_local(local, (int)(sizeof local / sizeof *local));
    self->addr_count = 0;
    for (int i = 0; i < count && self->addr_count < CT_ADDRS_MAX; i++) {
        if (!is_useful(&local[i]) || (local[i].any.sa_family == AF_INET6 && !has_v6))
            continue;
        ct_addr_set_port(&local[i], ct_addr_port(&bound));
        self->addrs[self->addr_count++] = local[i];
    }
    *out = fd;
    return 0;
}

static bool in_network(const struct ct_addr *addr, const struct ifaddrs *it)
{
    const unsigned char *a, *b, *mask;
    size_t length;

    if (!it->ifa_addr || !it->ifa_netmask ||
        it->ifa_addr->sa_family != addr->any.sa_family)
        return false;
    if (addr->any.sa_family == AF_INET) {
        a = (const void *)&addr->v4.sin_addr;
        b = (const void *)&((const struct sockaddr_in *)(const void *)it->ifa_addr)
                ->sin_addr;
        mask = (const void *)&(
                   (const struct sockaddr_in *)(const void *)it->ifa_netmask)
                   ->sin_addr;
        length = 4;
    } else {
        a = (const void *)&addr->v6.sin6_addr;
        b = (const void *)&((const struct sockaddr_in6 *)(const void *)it->ifa_addr)
                ->sin6_addr;
        mask = (const void *)&(
                   (const struct sockaddr_in6 *)(const void *)it->ifa_netmask)
                   ->sin6_addr;
        length = 16;
    }
    for (size_t i = 0; i < length; i++)
        if ((a[i] ^ b[i]) & mask[i])
            return false;
    return true;
}

/* 0 loopback that we share, 1 a network of ours, 2 elsewhere, -1 not theirs to reach. */
static int preference(const struct ct_addr *addr, bool same_net,
                      const struct ifaddrs *local)
{
    if (ct_addr_is_loopback(addr))
        return same_net ? 0 : -1;
    if (!same_net && ct_addr_is_mine(addr))
        return -1; /* a bridge that every machine has (172.17.0.1): it would lead to us */
    for (const struct ifaddrs *it = local; it; it = it->ifa_next)
        if (in_network(addr, it))
            return 1;
    return 2;
}

int ct_mesh_addr_order(int *order, const struct ct_peer *self,
                       const struct ct_peer *peer, const struct ifaddrs *local)
{
    bool same_net = self->net_id == peer->net_id;
    int count = 0;

    for (int wanted = 0; wanted <= 2; wanted++)
        for (int i = 0; i < peer->addr_count; i++)
            if (preference(&peer->addrs[i], same_net, local) == wanted)
                order[count++] = i;
    return count;
}
