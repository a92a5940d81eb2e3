/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of this machine with the interfaces that have them: what a name or a default route
 * cannot tell.
 *
 * One entry an address. Interfaces that are down are left out; those without a carrier (the
 * cable is out) are distinguished, because their addresses lead nowhere. */
#pragma once

#include <net/if.h>

#include "worker_sdk/net/addr.h"

enum {
    CT_NICS_MAX = 64 /* addresses of one machine that we look at: bridges may be many */
};

struct ct_nic {
    struct ct_addr addr;
    uint8_t prefix; /* bits of its network */
    bool is_loopback;
    bool has_carrier;
    char name[IF_NAMESIZE];
};

/* Up to `max` addresses, best to announce first: those with a carrier before those without,
 * global before link-local ones, loopback last; else as the kernel lists them. Count or -errno. */
int ct_nic_list(struct ct_nic *out, int max);
/* The entry of an address of ours, port ignored; false when it is not ours. */
bool ct_nic_find(struct ct_nic *out, const struct ct_addr *addr);
/* True for every loopback address, too. */
bool ct_nic_is_mine(const struct ct_addr *addr);
