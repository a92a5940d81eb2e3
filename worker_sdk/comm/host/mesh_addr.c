/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/net/nic.h"
#include "worker_sdk/comm/host/mesh_addr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/net/net.h"
#include "worker_sdk/net/port_range.h"
#include "worker_sdk/net/tcp.h"
#include "worker_sdk/comm/host/mesh.h"

static bool is_useful(const struct ct_addr *addr)
{
    /* A link-local address is useless without the interface, which differs on each machine. */
    return addr->any.sa_family != AF_INET6 ||
           !IN6_IS_ADDR_LINKLOCAL(&addr->v6.sin6_addr);
}

static int listen_on(int family, uint16_t port)
{
    struct ct_addr any = {.any.sa_family = (sa_family_t)family};
    const int off = 0;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    any.length = family == AF_INET6 ? sizeof any.v6 : sizeof any.v4;
    ct_addr_set_port(&any, port);
    if (family == AF_INET6)
        /* on failure the kernel's default applies */
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    ct_tcp_leave_bbr(fd); /* for the ranks on this host */
    if (bind(fd, &any.any, any.length) < 0 || listen(fd, SOMAXCONN) < 0) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

/* Reads --net and --port-range of the launcher from the environment. */
static int read_limits(struct ct_net *net, struct ct_port_range *ports,
                       struct ctrun_error *err)
{
    const char *net_text = getenv("CTRUN_NET");
    const char *ports_text = getenv("CTRUN_PORT_RANGE");
    int rc;

    if ((rc = ct_net_parse(net_text ? net_text : "", net, err)) < 0)
        return ct_wrap(err, "open group: CTRUN_NET"), rc;
    if ((rc = ct_port_range_parse(ports_text ? ports_text : "", ports, err)) < 0)
        return ct_wrap(err, "open group: CTRUN_PORT_RANGE"), rc;
    return 0;
}

/* Ranks of one host begin at different ports of the range (by pid), so that they do not all try the
 * same ports. */
static int listen_in(const struct ct_port_range *ports, bool *has_v6)
{
    const uint32_t seed = (uint32_t)getpid();
    int fd = -EADDRINUSE;

    for (int i = 0; i < ct_port_range_count(ports) && fd == -EADDRINUSE; i++) {
        const uint16_t port = ct_port_range_at(ports, seed, i);

        *has_v6 = true;
        /* One socket for both families, if the kernel has IPv6. */
        if ((fd = listen_on(AF_INET6, port)) >= 0 || fd == -EADDRINUSE)
            continue;
        *has_v6 = false; /* a kernel without IPv6 */
        fd = listen_on(AF_INET, port);
    }
    return fd;
}

static void announce(struct ct_peer *self, const struct ct_nic *nic, int port,
                     bool has_v6)
{
    if (self->addr_count == CT_ADDRS_MAX || !is_useful(&nic->addr) ||
        (nic->addr.any.sa_family == AF_INET6 && !has_v6))
        return;
    self->addrs[self->addr_count] = nic->addr;
    ct_addr_set_port(&self->addrs[self->addr_count++], port);
}

/* Announces loopback first, whatever --net says, for the ranks on this host. */
static void announce_all(struct ct_peer *self, const struct ct_net *net, int port,
                         bool has_v6)
{
    struct ct_nic local[CT_NICS_MAX];
    const int count = ct_nic_list(local, CT_NICS_MAX);

    self->addr_count = 0;
    for (int i = 0; i < count; i++)
        if (local[i].is_loopback)
            announce(self, &local[i], port, has_v6);
    for (int i = 0; i < count; i++)
        if (!local[i].is_loopback && ct_net_has(net, &local[i]))
            announce(self, &local[i], port, has_v6);
}

int ct_mesh_listen(int *out, struct ct_peer *self, struct ctrun_error *err)
{
    struct ct_addr bound = {.length = sizeof bound.v6};
    struct ct_port_range ports;
    struct ct_net net;
    bool has_v6 = true;
    int fd = read_limits(&net, &ports, err);

    if (fd < 0)
        return fd;
    fd = listen_in(&ports, &has_v6);
    if (fd == -EADDRINUSE && ports.first)
        return ct_fail(err, CTRUN_E_PORT_BUSY,
                       "open group: all ports of %u-%u are taken: give a wider "
                       "--port-range",
                       ports.first, ports.last);
    if (fd < 0)
        return ct_fail(err, fd, "open group: listen: %s", strerror(-fd));
    (void)getsockname(fd, &bound.any, &bound.length);
    announce_all(self, &net, ct_addr_port(&bound), has_v6);
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

/* 0: shared loopback; 1: in a network of ours; 2: elsewhere; -1: does not lead to the peer. */
static int preference(const struct ct_addr *addr, bool same_net,
                      const struct ifaddrs *local)
{
    if (ct_addr_is_loopback(addr))
        return same_net ? 0 : -1;
    if (!same_net && ct_nic_is_mine(addr))
        return -1; /* an address that we have, too (a bridge, 172.17.0.1) */
    for (const struct ifaddrs *it = local; it; it = it->ifa_next)
        if (in_network(addr, it))
            return 1;
    return 2;
}

/* Within each preference the peer's order is kept. */
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
