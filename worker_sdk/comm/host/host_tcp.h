/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over TCP, between all members of a group.
 *
 * Every call begins with a header from each to each: all know at once who is missing and whether
 * all mean the same. Up to CT_SWAP_BYTES of data travel with the header and are reduced by
 * everybody. Of more data each member reduces the slice that it owns: slices are sent to their owners right behind the
 * header, and the results then go round the ring of the members (all-gather) or down a chain (broadcast). A reduction
 * takes the members in rank order, whatever the size of the data. Sockets never block; waiting is a brief spin, then
 * poll(). */
#pragma once

#include "worker_sdk/comm/host/mesh.h"

enum {
    CT_SWAP_BYTES = 8192
};

struct ct_host_tcp;

/* mesh is kept; watch ends waits that nothing in the mesh would end. */
int ct_host_tcp_create(struct ct_host_tcp **out, struct ct_mesh *mesh,
                       struct ct_watch watch, struct ctrun_error *err);
void ct_host_tcp_destroy(struct ct_host_tcp *tcp);

/* Collectives; of one that is made of messages only the agreement. */
int ct_host_tcp_run(struct ct_host_tcp *tcp, const struct ct_call *call,
                    struct ctrun_error *err);
