/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/net/nic.h"

#include <errno.h>
#include <ifaddrs.h>

#include "worker_sdk/base/str.h"

static uint8_t count_bits(const struct sockaddr *mask)
{
    const uint8_t *bytes;
    size_t size;
    uint8_t bits = 0;

    if (!mask)
        return 0;
    if (mask->sa_family == AF_INET) {
        bytes = (const uint8_t *)&((const struct sockaddr_in *)(const void *)mask)
                    ->sin_addr;
        size = 4;
    } else {
        bytes = (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)mask)
                    ->sin6_addr;
        size = 16;
    }
    for (size_t i = 0; i < size; i++)
        bits = (uint8_t)(bits + __builtin_popcount(bytes[i]));
    return bits;
}

/* False if the entry has no IP address, or its interface is down. */
static bool take_entry(struct ct_nic *out, const struct ifaddrs *it)
{
    const sa_family_t family = it->ifa_addr ? it->ifa_addr->sa_family : AF_UNSPEC;

    if ((family != AF_INET && family != AF_INET6) || !(it->ifa_flags & IFF_UP))
        return false;
    *out = (struct ct_nic){
        .prefix = count_bits(it->ifa_netmask),
        .is_loopback = it->ifa_flags & IFF_LOOPBACK,
        .has_carrier = it->ifa_flags & IFF_RUNNING,
    };
    out->addr.length = family == AF_INET ? sizeof out->addr.v4 : sizeof out->addr.v6;
    memcpy(&out->addr.any, it->ifa_addr, out->addr.length);
    (void)ct_copy(out->name, sizeof out->name, it->ifa_name); /* same size */
    return true;
}

/* The order for announcing addresses: smaller first. */
static int class_of(const struct ct_nic *nic)
{
    if (nic->is_loopback)
        return 3;
    if (!nic->has_carrier)
        return 2;
    return ct_addr_is_link_local(&nic->addr) ? 1 : 0;
}

enum {
    CLASSES = 4
};

int ct_nic_list(struct ct_nic *out, int max)
{
    struct ifaddrs *list;
    struct ct_nic nic;
    int count = 0;

    if (getifaddrs(&list) < 0)
        return -errno;
    for (int wanted = 0; wanted < CLASSES; wanted++)
        for (const struct ifaddrs *it = list; it && count < max; it = it->ifa_next)
            if (take_entry(&nic, it) && class_of(&nic) == wanted)
                out[count++] = nic;
    freeifaddrs(list);
    return count;
}

bool ct_nic_find(struct ct_nic *out, const struct ct_addr *addr)
{
    struct ifaddrs *list;
    bool is_found = false;

    if (getifaddrs(&list) < 0)
        return false;
    for (const struct ifaddrs *it = list; it && !is_found; it = it->ifa_next)
        is_found = take_entry(out, it) && ct_addr_is_same_host(&out->addr, addr) &&
                   (!ct_addr_is_link_local(addr) || !addr->v6.sin6_scope_id ||
                    addr->v6.sin6_scope_id == out->addr.v6.sin6_scope_id);
    freeifaddrs(list);
    return is_found;
}

bool ct_nic_is_mine(const struct ct_addr *addr)
{
    struct ct_nic nic;

    return ct_addr_is_loopback(addr) || ct_nic_find(&nic, addr);
}
