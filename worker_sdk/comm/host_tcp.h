/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over TCP, between the members of a team (all members, or one of each host).
 *
 * Every call begins with a header from each to each: all know at once who is missing and whether
 * all mean the same. Up to CT_SWAP_BYTES of data travel with the header and are reduced by
 * everybody, in the order of the team. More data goes round the ring of the team as one stream
 * (reduce-scatter, then all-gather; a piece is sent on as soon as it is reduced), or down a
 * chain (broadcast). Sockets never block; waiting is a brief spin, then poll(). */
#ifndef CT_COMM_HOST_TCP_H
#define CT_COMM_HOST_TCP_H

#include "worker_sdk/comm/mesh.h"

enum {
    CT_SWAP_BYTES = 8192
};

struct ct_host_tcp;

/* members: index in the mesh of each, ascending; copied. */
struct ct_team {
    const int *members;
    int size;
    int me; /* our place in members */
};

/* mesh is kept; watch ends waits that nothing in the mesh would end. */
int ct_host_tcp_create(struct ct_host_tcp **out, struct ct_mesh *mesh,
                       struct ct_watch watch, struct ctrun_error *err);
void ct_host_tcp_destroy(struct ct_host_tcp *tcp);

/* All kinds of calls. For SEND and RECV call->peer is an index in the mesh, for BROADCAST a
 * place in the team. */
int ct_host_tcp_run(struct ct_host_tcp *tcp, const struct ct_team *team,
                    const struct ct_call *call, struct ctrun_error *err);

#endif
