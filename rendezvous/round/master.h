/* SPDX-License-Identifier: Apache-2.0 */
/* MASTER_ADDR: the address under which every node can reach group rank 0.
 *
 * In this order:
 *   1. --local-addr of that node
 *   2. all members on one host: 127.0.0.1
 *   3. the node's address as the server sees it, unless this is loopback
 *   4. the node is on the server's host (loopback): the address of the server that another node
 *      connected to, because that address is proved to be reachable
 * Nothing is looked up and no name is guessed. Pure. */
#pragma once

#include "rendezvous/round/member.h"

/* Writes into dst[CT_HOST_MAX]; count > 0, world[0] is group rank 0. */
void master_choose(char *dst, struct member *const *world, size_t count);
/* False: `master` is a loopback address, and `a` and `b` are on different hosts. */
bool master_is_common(const char *master, const struct member *a,
                      const struct member *b);
