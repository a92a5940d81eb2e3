/* SPDX-License-Identifier: Apache-2.0 */
/* --net: which of this machine's addresses may be used, by interface or by network.
 *
 *     eth0                    all addresses of that interface
 *     10.77.0.0/16, fd77::/64 those in the network; without /BITS the one address
 *     ib0,eth0                either: nodes may have different interfaces
 *
 * Pure but for ct_net_list(). */
#pragma once

#include "worker_sdk/net/nic.h"

enum {
    CT_NET_ITEMS_MAX = 8
};

struct ct_net_item {
    char name[IF_NAMESIZE]; /* empty: by network */
    struct ct_addr network;
    uint8_t prefix;
};

struct ct_net {
    int count; /* 0: everything may be used */
    struct ct_net_item items[CT_NET_ITEMS_MAX];
};

/* 0, or -EINVAL. An empty text is "everything". */
int ct_net_parse(const char *text, struct ct_net *out, struct ctrun_error *err);
bool ct_net_has(const struct ct_net *net, const struct ct_nic *nic);
/* As ct_nic_list(), but only addresses in `net`; loopback only if `net` names it. In the order of
 * the items of `net`, and within an item in the order of ct_nic_list(). If `net` has count 0: all
 * of ct_nic_list(). */
int ct_net_list(const struct ct_net *net, struct ct_nic *out, int max);
