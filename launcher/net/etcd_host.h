/* SPDX-License-Identifier: Apache-2.0 */
/* What the host of a run writes about itself into etcd, and what others read there: its name
 * for people, its port, its numeric addresses. Pure.
 *
 *     ctrun 1
 *     node3
 *     41234
 *     10.0.0.13
 *     fd00::13 */
#ifndef LAUNCHER_NET_ETCD_HOST_H
#define LAUNCHER_NET_ETCD_HOST_H

#include "launcher/net/addresses.h"

enum {
    ETCD_HOST_TEXT_MAX = 64 + CT_HOST_MAX + CT_ADDRS_MAX * CT_ADDR_TEXT_MAX
};

struct etcd_host {
    char name[CT_HOST_MAX];
    struct ct_addr addrs[CT_ADDRS_MAX]; /* with its port */
    size_t count;
};

/* This node as others should reach it: --local-addr or --net, else all addresses, loopback ones
 * only when there are no others. */
void etcd_host_fill(struct etcd_host *out, const char *name,
                    const struct addresses *addresses, uint16_t port);
/* The length, or -ENAMETOOLONG. */
int etcd_host_format(char *dst, size_t size, const struct etcd_host *host);
/* 0 or -EBADMSG; `text` is terminated. Addresses that this machine cannot read are skipped. */
int etcd_host_parse(struct etcd_host *out, const char *text, size_t length);

#endif
