/* SPDX-License-Identifier: Apache-2.0 */
/* The network that all nodes of a world use among themselves, where they have several: that of
 * MASTER_ADDR, for each node tells its workers the interface from which it gets there.
 *
 * Nobody knows a network by name: the address of a node that shares most leading bits with
 * MASTER_ADDR is taken for the one beside it. Each node proves that it reaches MASTER_ADDR and, over
 * the addresses beside it, a sample of the others: all pairs up to 8 nodes, 4 a node above. Where one
 * does not, that network is cut for this run, and the next round is told another.
 *
 * An address that was typed (--local-addr of the first node, --master-addr) stays: then the sample is
 * tried while the workers run, and who is not reached is only told. Pure. */
#pragma once

#include "rendezvous/round/member.h"

enum {
    NETWORKS_CUT_MAX = 4 /* so many are tried: each costs a round of time-outs */
};

struct networks {
    uint8_t cut_count;
    char cut[NETWORKS_CUT_MAX]
            [CT_ADDR_TEXT_MAX]; /* what MASTER_ADDR was, oldest first */
};

/* False: there is no room for another, or it is there. */
bool networks_cut(struct networks *networks, const char *master);
/* Fills master_addr, reach and peers of each member's start, whose ranks are assigned. count > 0,
 * in the world's order. */
void networks_choose(const struct networks *networks, struct member **world,
                     size_t count);
/* The address of world[0] for the others, in the network of `master`, which was another node's address until now. */
void networks_choose_beside(char dst[CT_HOST_MAX], const char *master,
                            struct member *const *world, size_t count);
