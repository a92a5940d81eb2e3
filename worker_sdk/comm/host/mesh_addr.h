/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses of a mesh: which ones a member announces (ct_mesh_listen() in mesh.h), and in which
 * order another member tries them. */
#pragma once

#include <ifaddrs.h>

#include "worker_sdk/comm/host/discover.h"

/* Fills order (room for CT_ADDRS_MAX) with the indices into peer->addrs that self can try, best
 * first: loopback if both share a network namespace, then addresses in a network of `local` (may be
 * NULL), then the others. Returns how many; addresses that would lead back to us are left out. */
int ct_mesh_addr_order(int *order, const struct ct_peer *self,
                       const struct ct_peer *peer, const struct ifaddrs *local);
