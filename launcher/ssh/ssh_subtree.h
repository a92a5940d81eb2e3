/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a --hosts run that one process starts: perhaps this host, and the other hosts of its
 * list through ssh. It opens at most `fanout` connections at first, each to the first host of an
 * equal part of the list, which does the same with its part. If such a host cannot be reached, the
 * rest of its part is called from here.
 *
 * Every host:  CALLED ──> READY ──GO──> RUNNING ──> ENDED
 *                └─> FAILED  └───────────┴─> LOST
 *
 * The last state of every line is final; each change is one message to on_message. */
#pragma once

#include "agent/loop/loop.h"
#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_message.h"

#define SSH_NOWHERE UINT32_MAX

enum ssh_host_state {
    SSH_HOST_CALLED,
    SSH_HOST_READY,  /* before and after GO */
    SSH_HOST_SAVING, /* its ctrun writes held checkpoints before it ends */
    SSH_HOST_FAILED,
    SSH_HOST_ENDED,
    SSH_HOST_LOST,
};

struct ssh_subtree;

struct ssh_subtree_options {
    struct loop *loop;
    const struct ssh_job *job; /* borrowed */
    uint32_t here; /* place of this machine; SSH_NOWHERE: all hosts are called */
    void *context;
    void (*on_message)(void *context, const struct ssh_message *message);
    /* A connection has room again or is closed; see ssh_subtree_is_full(). */
    void (*on_room)(void *context);
    /* All hosts are in a final state and all connections are closed. */
    void (*on_over)(void *context);
};

/* 0 or a negative errno. */
int ssh_subtree_create(struct ssh_subtree **out,
                       const struct ssh_subtree_options *options);
/* Reports READY for this host, and calls the other hosts. May call on_over(). */
void ssh_subtree_start(struct ssh_subtree *subtree);
/* Sends SERVE, GO, SIGNAL or STAGE to this host and all others; PIECE to the hosts that need it.
 * Returns the number of connections that the message was sent to. */
uint32_t ssh_subtree_send(struct ssh_subtree *subtree,
                          const struct ssh_message *message);
/* True when a connection is full: PIECEs and STAGEs should wait. */
bool ssh_subtree_is_full(const struct ssh_subtree *subtree);
void ssh_subtree_pause(struct ssh_subtree *subtree, bool is_paused);
/* To be called after a SIGCHLD. */
void ssh_subtree_reap(struct ssh_subtree *subtree);
enum ssh_host_state ssh_subtree_state(const struct ssh_subtree *subtree,
                                      uint32_t place);
/* Kills what still runs here and closes the connections; then other hosts kill what runs there.
 * NULL is fine. */
void ssh_subtree_destroy(struct ssh_subtree *subtree);
