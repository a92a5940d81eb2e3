/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a --hosts run that one process looks after: perhaps this host, and the rest of
 * the list through ssh, at most `fanout` connections at first, each to the first host of an
 * equal piece, which goes on in the same way. When such a host cannot be reached, the rest of
 * its piece is called from here.
 *
 * Every host:  CALLED ──> READY ──GO──> RUNNING ──> ENDED
 *                └─> FAILED  └───────────┴─> LOST
 *
 * The last state of every line is final; each change is one message to on_message. */
#ifndef LAUNCHER_FLEET_PART_H
#define LAUNCHER_FLEET_PART_H

#include "agent/loop.h"
#include "launcher/fleet_job.h"
#include "launcher/fleet_message.h"

#define FLEET_NOWHERE UINT32_MAX

enum fleet_host_state {
    FLEET_HOST_CALLED,
    FLEET_HOST_READY, /* GO or not */
    FLEET_HOST_FAILED,
    FLEET_HOST_ENDED,
    FLEET_HOST_LOST,
};

struct fleet_part;

struct fleet_part_options {
    struct loop *loop;
    const struct fleet_job *job; /* kept */
    uint32_t here; /* place of this machine; FLEET_NOWHERE: all hosts are called */
    void *context;
    void (*on_message)(void *context, const struct fleet_message *message);
    /* No connection is full any more; see fleet_part_is_full(). */
    void (*on_room)(void *context);
    /* All hosts are in a final state and all connections are closed. */
    void (*on_over)(void *context);
};

/* 0 or a negative errno. */
int fleet_part_create(struct fleet_part **out,
                      const struct fleet_part_options *options);
/* READY for this host, and the calls. on_over() may come at once. */
void fleet_part_start(struct fleet_part *part);
/* SERVE, GO, SIGNAL or STAGE, for this host and all others; PIECE, for those who need it. Returns
 * the number of connections that it went to. */
uint32_t fleet_part_tell(struct fleet_part *part, const struct fleet_message *message);
/* True when a connection takes nothing for now: PIECEs and STAGEs should wait. */
bool fleet_part_is_full(const struct fleet_part *part);
void fleet_part_pause(struct fleet_part *part, bool is_paused);
/* To be called after a SIGCHLD. */
void fleet_part_reap(struct fleet_part *part);
enum fleet_host_state fleet_part_state(const struct fleet_part *part, uint32_t place);
/* Kills what is left here; what is elsewhere sees the connections end. NULL is fine. */
void fleet_part_destroy(struct fleet_part *part);

#endif
