/* SPDX-License-Identifier: Apache-2.0 */
/* Discovery: every member stores its hello (identity and addresses); member 0 gathers the hellos
 * into one table, which all members read. Each member writes one key and reads one; only member 0
 * reads all hellos and writes the table.
 *
 *     KEY/hello/R   by rank R: a struct ct_peer, encoded
 *     KEY/table     by member 0: the cookie of the group and all hellos, or an error
 */
#pragma once

#include "worker_sdk/comm/host/peer.h"

enum {
    CT_COOKIE_BYTES = 16,
};

/* Blocks until all members have come. peers: setup->size entries; the caller fills in
 * peers[setup->me], which describes this process; the others are filled in here. cookie:
 * CT_COOKIE_BYTES, the same on all members, unknown to other programs. On CTRUN_E_TIMEOUT err names
 * the missing ranks. CTRUN_E_MISMATCH: not all ranks were given the same members. */
int ct_discover(struct ct_peer *peers, unsigned char *cookie,
                const struct ct_backend_setup *setup, struct ctrun_error *err);
