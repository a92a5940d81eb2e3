/* SPDX-License-Identifier: Apache-2.0 */
/* This host's own ctrun in a --hosts run, as a child: turns its workers' output, its own messages
 * and its end into messages of ssh_message.h. */
#pragma once

#include "agent/loop/loop.h"
#include "launcher/ssh/ssh_stage_receive.h"
#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_message.h"

struct ssh_node;

struct ssh_node_options {
    struct loop *loop;
    const struct ssh_job *job;               /* borrowed */
    uint32_t place;                          /* of this host */
    const struct ssh_stage_receive *receive; /* NULL: nothing was staged */
    void *context;
    /* OUTPUT, WORDS, STARTED; at last ENDED. */
    void (*on_message)(void *context, const struct ssh_message *message);
};

/* 0, or a code. */
int ssh_node_open(struct ssh_node **out, const struct ssh_node_options *options,
                  const char *endpoint, struct ctrun_error *err);
void ssh_node_signal(struct ssh_node *node, int signal);
void ssh_node_pause(struct ssh_node *node, bool is_paused);
/* Checks whether the ctrun has ended; to be called after a SIGCHLD. NULL is fine. */
void ssh_node_reap(struct ssh_node *node);
/* Kills the ctrun if it still runs. NULL is fine. */
void ssh_node_close(struct ssh_node *node);
