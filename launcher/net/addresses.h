/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of this node: which the others may use, where its listeners are bound.
 *
 *     --local-addr ADDR   this one: others are told it, the worker store is bound to it
 *     --net IFACE|CIDR    the first one in it, in the same way; no other is announced
 *     neither             all are announced, those with a carrier first; others use the one that
 *                         this node reached the rendezvous from, and prove that it works
 *
 * A run of one node has the loopback interface and no other. The only name that is
 * looked up is that of --local-addr. */
#pragma once

#include "launcher/config/config.h"
#include "launcher/net/rdzv_endpoint.h"

struct addresses {
    char local[CT_HOST_MAX]; /* sent to others; empty: the one that the server sees */
    bool has_bind;           /* `bind` is ours: worker stores listen there alone */
    struct ct_addr bind;
    int count; /* of `list` */
    struct ct_nic list[CT_MESSAGE_ADDRS_MAX];
};

/* 0, or CTRUN_E_USAGE: --net has no address on this node. */
int addresses_resolve(struct addresses *out, const struct config *config,
                      struct ctrun_error *err);
void addresses_fill_join(const struct addresses *addresses, const struct config *config,
                         struct ct_join *join);
/* Where the embedded server listens: at the endpoint alone when that is a number of ours, else
 * at all addresses, because nodes may know its name by another one. A name that is loopback
 * here, as Debian's /etc/hosts has it for the machine's own, is no loopback elsewhere. */
struct ct_addr addresses_choose_bind(const struct rdzv_endpoint *endpoint,
                                     const struct config *config);
/* The addresses at which others reach a listener at `bound`: `all`, unless `bound` is a single
 * address. */
void addresses_narrow(struct addresses *out, const struct addresses *all,
                      const struct ct_addr *bound);
