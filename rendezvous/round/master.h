/* SPDX-License-Identifier: Apache-2.0 */
/* MASTER_ADDR: the address under which every node can reach group rank 0.
 *
 * In this order:
 *   1. what its user said: --local-addr
 *   2. all members on one host: 127.0.0.1
 *   3. its address as the server sees it, unless that is loopback
 *   4. it sits beside the server (loopback): the address of the server that another node
 *      dialled, because that one is proved to be reachable
 * Nothing is looked up and no name is guessed. Pure. */
#pragma once

#include "rendezvous/round/member.h"

/* Writes into dst[CT_HOST_MAX]; count > 0, world[0] is group rank 0. */
void master_choose(char *dst, struct member *const *world, size_t count);
/* False: an address of a host for itself, and the two are on different ones. */
bool master_is_common(const char *master, const struct member *a,
                      const struct member *b);
