/* SPDX-License-Identifier: Apache-2.0 */
/* --net: which of this machine's addresses may be used, by interface or by network.
 *
 *     eth0                    all addresses of that interface
 *     10.77.0.0/16, fd77::/64 those in the network; without /BITS the one address
 *     ib0,eth0                either: nodes need not have the same interfaces
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
/* ct_nic_list(), but only what is in `net`; loopback only when `net` names it. In the order of
 * the items, and within one as ct_nic_list() has it. `net` of count 0: the same as that. */
int ct_net_list(const struct ct_net *net, struct ct_nic *out, int max);
