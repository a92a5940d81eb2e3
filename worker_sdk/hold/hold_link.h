/* SPDX-License-Identifier: Apache-2.0 */
/* The connections over which this process asks its agent to hold checkpoints: one over which files
 * are made, and one to wait and to look, so that a wait that ends without an answer drops no file. A
 * child of fork() opens its own. The caller makes sure that one thread calls at a time. */
#pragma once

#include "worker_sdk/wire/message.h"

enum ct_hold_link {
    CT_HOLD_LINK_MAKE,
    CT_HOLD_LINK_LOOK,
    CT_HOLD_LINKS
};

/* Sends the request, with a descriptor unless fd is -1, and waits for the reply. *passed, unless
 * it is NULL, is the descriptor that came with it, the caller's, or -1. 0, the reply's code with
 * its text in err, or another code: then the connection is closed, and the agent drops what was
 * made over it and not committed. */
int ct_hold_link_ask(enum ct_hold_link which, const struct ct_worker_hold *request,
                     int fd, uint64_t deadline_ms, struct ct_worker_hold_reply *reply,
                     int *passed, struct ctrun_error *err);
enum {
    CT_HOLD_LINK_NO_AGENT = 1
};
/* The same, for a request that needs no earlier one: connects first, if need be, and once more when
 * the connection has ended since it was last used. CT_HOLD_LINK_NO_AGENT: there is none, or it has
 * ended. Other errors of the connection: it may be there, and write what was committed. Blocks until
 * deadline_ms. */
int ct_hold_link_begin(struct ctrun_session *session, enum ct_hold_link which,
                       const struct ct_worker_hold *request, int fd,
                       uint64_t deadline_ms, struct ct_worker_hold_reply *reply,
                       int *passed, struct ctrun_error *err);
