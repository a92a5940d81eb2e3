/* SPDX-License-Identifier: Apache-2.0 */
/* The meeting: every member says who and where it is; member 0 gathers that into one table and
 * all read it. Each rank does two writes and one read, however large the group is.
 *
 *     KEY/hello/R   by rank R: a struct ct_peer, encoded
 *     KEY/table     by member 0: the cookie of the group and all hellos, or who did not come or has other members
 */
#pragma once

#include "worker_sdk/comm/host/peer.h"

enum {
    CT_COOKIE_BYTES = 16,
};

/* Blocks until all have come. peers: setup->size entries; peers[setup->me] is filled in by the
 * caller and says who we are, the others are filled here. cookie: CT_COOKIE_BYTES, the same on
 * all members, unknown to other programs. On CTRUN_E_TIMEOUT err names the missing ranks. CTRUN_E_MISMATCH: not all
 * were given the same members. */
int ct_discover(struct ct_peer *peers, unsigned char *cookie,
                const struct ct_backend_setup *setup, struct ctrun_error *err);
