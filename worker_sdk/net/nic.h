/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of this machine with their interfaces, which a host name or a default route does not
 * tell.
 *
 * One entry for each address. Interfaces that are down are left out; those without a carrier (no
 * cable) are marked, because other hosts cannot reach their addresses. */
#pragma once

#include <net/if.h>

#include "worker_sdk/net/addr.h"

enum {
    CT_NICS_MAX = 64 /* more are ignored; a machine may have many bridges */
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
/* The entry for an address of this machine, port ignored; false: not of this machine. */
bool ct_nic_find(struct ct_nic *out, const struct ct_addr *addr);
/* True for an address of this machine, and for every loopback address. */
bool ct_nic_is_mine(const struct ct_addr *addr);
