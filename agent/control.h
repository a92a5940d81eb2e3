/* SPDX-License-Identifier: Apache-2.0 */
/* The Unix socket of the agent for its own workers (SDK programs): steps and crash records come
 * in, "please stop" goes out. It has an abstract name, so that no file is left behind; who may
 * speak is decided by the kernel's word on the peer: our user, and a process below us. */
#ifndef AGENT_CONTROL_H
#define AGENT_CONTROL_H

#include "agent/loop.h"
#include "worker_sdk/wire/message.h"

struct control;

enum {
    CONTROL_NAME_MAX = 64
};

struct control_options {
    struct loop *loop;
    void *context;
    /* Worker `rank` of `generation` has finished `step`. */
    void (*on_step)(void *context, int rank, uint64_t generation, int64_t step);
};

int control_open(struct control **out, const struct control_options *options,
                 struct ctrun_error *err);
void control_close(struct control *control); /* NULL is fine */
/* For CTRUN_AGENT_SOCKET: "@..." stands for the abstract name. */
const char *control_name(const struct control *control);
/* Tells every connected worker to save and leave; those that come later hear it, too, until
 * control_begin_round(). Returns how many heard it. */
int control_ask_to_stop(struct control *control, const char *reason);
/* Takes what has come by now, also from those that are dead but not yet reaped. */
void control_catch_up(struct control *control);
/* The record of a crash of `rank` in `generation`, that is of `pid` or else of the last below it
 * that crashed; the caller's to close. -1: none. */
int control_take_crash(struct control *control, int rank, uint64_t generation,
                       pid_t pid);
/* `workers` processes may connect from now on; crashes of earlier rounds are forgotten. */
void control_begin_round(struct control *control, int workers);

#endif
