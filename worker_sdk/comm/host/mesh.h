/* SPDX-License-Identifier: Apache-2.0 */
/* Two TCP connections between every two members: one for data, one for control.
 *
 * Control reports deaths and failures: a member that fails sends its code and text to all before it
 * closes; a connection that ends without a note is a death (keep-alive notices a power cut after 20
 * s). Control is separate so that a reason arrives even when data are stuck half-way, and so that a
 * member that waits in vain can ask the others whom they wait for: a stopped process does not
 * answer.
 *
 * Opening: each member listens on a port of its own before discovery. The higher member connects to
 * the lower one and tries the addresses that the lower one announced: loopback if both are in the
 * same network namespace, then addresses in a network of ours, then the others. Both sides greet
 * with halves of the group's cookie; other connections are dropped. */
#pragma once

#include "worker_sdk/comm/host/discover.h"
#include "worker_sdk/comm/host/segment.h"

struct ct_mesh {
    int size;
    int me;
    const struct ct_peer *peers; /* kept */
    int *data;                   /* descriptor by member; -1 for ourselves */
    int *control;
    struct ctrun_error reason; /* the first reason that arrived; code 0: none */
    uint64_t reason_ms;        /* when the reason arrived */
    bool is_received;          /* sent by another member; its text names the call */
    struct mesh_note *notes;   /* what came on control, by member */
    /* the member whose data we wait for, told to peers that ask; -1: none */
    int awaited;
    int watch; /* epoll over control and wake: readable when one of them is */
    int wake;  /* eventfd: ct_mesh_wake() */
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
/* Sends NOTE_LEFT and closes. Accepts a zeroed or half-open mesh. */
void ct_mesh_close(struct ct_mesh *mesh);

/* Reads what arrived on control: 0, or why the group has ended: the code and text of the member
 * that failed, or CTRUN_E_PEER_LOST for a member that has ended. A reason counts only when it is
 * grace_ms old: the failed member may have finished the call that we are still in, and then the
 * data that we lack are on their way. Never blocks. */
enum {
    CT_REASON_GRACE_MS = 50
};
int ct_mesh_check(struct ct_mesh *mesh, uint64_t grace_ms, struct ctrun_error *err);
/* Called when the data connection to `member` has ended: waits a short time for the reason.
 * Negative. */
int ct_mesh_explain(struct ct_mesh *mesh, int member, struct ctrun_error *err);
/* Asks all members whom they wait for; their ct_mesh_check() answers. Never blocks. */
void ct_mesh_ask(struct ct_mesh *mesh);
/* Follows the answers, starting at mesh->awaited. Returns the first member that did not answer; -1:
 * all did. */
int ct_mesh_find_silent(const struct ct_mesh *mesh);
/* Sends code and text to all members. Any thread; never blocks. */
void ct_mesh_send_code(struct ct_mesh *mesh, int code, const char *text);
/* Makes `watch` readable for good. Any thread. */
void ct_mesh_wake(struct ct_mesh *mesh);
