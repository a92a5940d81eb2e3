/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the network that the nodes of a world use if they have several: that of MASTER_ADDR, as
 * each node tells its workers the interface from which it reaches MASTER_ADDR.
 *
 * Networks have no names here: the address of a node that shares most leading bits with MASTER_ADDR
 * counts as in the same network. Each node proves that it reaches MASTER_ADDR and, in that network,
 * a sample of the other nodes: all pairs up to 8 nodes, 4 peers a node above. If a proof fails,
 * that network is cut for this run, and the next round gets another.
 *
 * An address given by the user (--local-addr of the first node, --master-addr) stays: then the
 * sample is tried while the workers run, and a node that is not reached only causes a warning.
 * Pure. */
#pragma once

#include "rendezvous/round/member.h"

enum {
    NETWORKS_CUT_MAX = 4 /* networks cut at most: each costs a round of time-outs */
};

struct networks {
    uint8_t cut_count;
    char cut[NETWORKS_CUT_MAX]
            [CT_ADDR_TEXT_MAX]; /* the MASTER_ADDR of each cut network, oldest first */
};

/* False: the list is full, or has this address already. */
bool networks_cut(struct networks *networks, const char *master);
/* Fills master_addr and reach of `start`, and the peers of each member. count > 0, in the world's order. */
void networks_choose(const struct networks *networks, struct ct_start *start,
                     struct member **world, size_t count);
/* The address of world[0] for the others, in the network of `master`, which was another node's address until now. */
void networks_choose_beside(char dst[CT_HOST_MAX], const char *master,
                            struct member *const *world, size_t count);
