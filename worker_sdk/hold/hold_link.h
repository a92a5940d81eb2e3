/* SPDX-License-Identifier: Apache-2.0 */
/* The connection over which this process asks its agent to hold checkpoints. One per process; a
 * child of fork() opens its own. The caller makes sure that one thread calls at a time. */
#pragma once

#include "worker_sdk/wire/message.h"

/* 0; -ENOENT: there is no agent, or it does not reply; else the code with which it refused. Blocks
 * until deadline_ms. */
int ct_hold_link_open(struct ctrun_session *session, uint64_t deadline_ms,
                      struct ctrun_error *err);
/* Sends the request, with a descriptor unless fd is -1, and waits for the reply. *passed, unless
 * it is NULL, is the descriptor that came with it, the caller's, or -1. 0, the reply's code with
 * its text in err, or another code: then the connection is closed, and the agent drops what was
 * not committed. */
int ct_hold_link_ask(const struct ct_worker_hold *request, int fd, uint64_t deadline_ms,
                     struct ct_worker_hold_reply *reply, int *passed,
                     struct ctrun_error *err);
