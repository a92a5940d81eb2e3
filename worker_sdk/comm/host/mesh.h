/* SPDX-License-Identifier: Apache-2.0 */
/* Two TCP connections between every two members: one for data, one for control.
 *
 * Control tells death and reasons: whoever fails sends its code and sentence to all before it
 * closes; a connection that ends without a word is a death (keep-alive notices a power cut
 * after 20 s). It is separate so that a reason gets through when data are stuck half-way, and so
 * that who waits without success can ask whom the others wait for: one that is stopped does not answer.
 *
 * Opening: each member listens on a port of its own from before the meeting. The higher member
 * connects to the lower, trying the addresses it announced: loopback if both are in the same
 * network namespace, then those in a network of ours, then the others. Both sides greet with
 * halves of the group's cookie; whatever else connects is dropped. */
#pragma once

#include "worker_sdk/comm/host/discover.h"
#include "worker_sdk/comm/host/segment.h"

struct ct_mesh {
    int size;
    int me;
    const struct ct_peer *peers; /* kept */
    int *data;                   /* descriptor by member; -1 for ourselves */
    int *control;
    struct ctrun_error reason; /* the first that came; code 0: none */
    uint64_t reason_ms;        /* when */
    bool is_received;          /* from another member, whose sentence names its call */
    struct mesh_note *notes;   /* what came on control, by member */
    int awaited; /* the member whose data we wait for, told to who asks; -1: none */
    int watch;   /* epoll over control and wake: readable when there is news */
    int wake;    /* eventfd: ct_mesh_wake() */
};

/* Opens the listener and fills in self->addrs. */
int ct_mesh_listen(int *out, struct ct_peer *self, struct ctrun_error *err);

struct ct_mesh_setup {
    const struct ct_peer *peers; /* kept; size entries */
    int size;
    int me;
    int listener; /* borrowed */
    const unsigned char *cookie;
    struct ct_watch watch;
    uint64_t deadline_ms;
};
int ct_mesh_open(struct ct_mesh *mesh, const struct ct_mesh_setup *setup,
                 struct ctrun_error *err);
/* Says goodbye and closes. Zeroed and half-open ones are fine. */
void ct_mesh_close(struct ct_mesh *mesh);

/* Reads what came on control: 0, or why the group is over: the code and sentence of the member
 * that failed, or CTRUN_E_PEER_LOST for one that died. A reason counts only when it is grace_ms
 * old: whoever failed may have been through with the call that we are still in, and then what
 * we lack is on its way. Never blocks. */
enum {
    CT_REASON_GRACE_MS = 50
};
int ct_mesh_check(struct ct_mesh *mesh, uint64_t grace_ms, struct ctrun_error *err);
/* The data connection to member has ended: gives the reason some time to arrive. Negative. */
int ct_mesh_explain(struct ct_mesh *mesh, int member, struct ctrun_error *err);
/* Asks all members whom they wait for; ct_mesh_check() of theirs answers. Never blocks. */
void ct_mesh_ask(struct ct_mesh *mesh);
/* Follows the answers from mesh->awaited on: the first member that gave none; -1: all did. */
int ct_mesh_find_silent(const struct ct_mesh *mesh);
/* Sends code and text to all members. Any thread; never blocks. */
void ct_mesh_send_code(struct ct_mesh *mesh, int code, const char *text);
/* Makes `watch` readable for good. Any thread. */
void ct_mesh_wake(struct ct_mesh *mesh);
