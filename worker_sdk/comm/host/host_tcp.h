/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over TCP, between all members of a group.
 *
 * Every call begins with a header from each member to each other one: so every member knows which
 * members are missing and whether all make the same call. Up to CT_SWAP_BYTES of data are sent with
 * the header and reduced by every member. For more data each member reduces the slice that it owns:
 * slices are sent to their owners right behind the header, and the results then go round the ring
 * of the members (all-gather) or down a chain (broadcast). A reduction takes the members in rank
 * order, whatever the size of the data. Sockets never block; waiting is a brief spin, then
 * poll(). */
#pragma once

#include "worker_sdk/comm/host/mesh.h"

enum {
    CT_SWAP_BYTES = 8192
};

struct ct_host_tcp;

/* mesh is kept; watch ends a wait for reasons that the mesh does not report. */
int ct_host_tcp_create(struct ct_host_tcp **out, struct ct_mesh *mesh,
                       struct ct_watch watch, struct ctrun_error *err);
void ct_host_tcp_destroy(struct ct_host_tcp *tcp);

/* Runs a collective; for a collective made of messages only the agreement. */
int ct_host_tcp_run(struct ct_host_tcp *tcp, const struct ct_call *call,
                    struct ctrun_error *err);
