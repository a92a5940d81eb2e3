/* SPDX-License-Identifier: Apache-2.0 */
/* This host's own ctrun in a --hosts run, as a child: its workers' output, what it says itself,
 * and its end, all as messages. */
#ifndef LAUNCHER_FLEET_NODE_H
#define LAUNCHER_FLEET_NODE_H

#include "agent/loop.h"
#include "launcher/fleet_intake.h"
#include "launcher/fleet_job.h"
#include "launcher/fleet_message.h"

struct fleet_node;

struct fleet_node_options {
    struct loop *loop;
    const struct fleet_job *job;       /* kept */
    uint32_t place;                    /* of this host */
    const struct fleet_intake *intake; /* NULL: nothing was staged */
    void *context;
    /* OUTPUT, WORDS, STARTED; ENDED is the last one. */
    void (*on_message)(void *context, const struct fleet_message *message);
};

/* 0, or a code. */
int fleet_node_open(struct fleet_node **out, const struct fleet_node_options *options,
                    const char *endpoint, struct ctrun_error *err);
void fleet_node_signal(struct fleet_node *node, int signal);
void fleet_node_pause(struct fleet_node *node, bool is_paused);
/* Looks whether it has ended; to be called after a SIGCHLD. NULL is fine. */
void fleet_node_reap(struct fleet_node *node);
/* Kills it when it is there still. NULL is fine. */
void fleet_node_close(struct fleet_node *node);

#endif
