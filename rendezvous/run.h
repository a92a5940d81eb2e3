/* SPDX-License-Identifier: Apache-2.0 */
/* A run: its round, the timer that wakes it, and the execution of what the round decides.
 *
 *     run_create ── run_step, run_step, ... ── run_forget
 *
 * It begins with the first HELLO of its id, which brings its settings, and is forgotten with its
 * last member. */
#ifndef RENDEZVOUS_RUN_H
#define RENDEZVOUS_RUN_H

#include "rendezvous/journal.h"
#include "rendezvous/peer.h"
#include "rendezvous/round.h"

struct run {
    struct ct_list node;
    char id[CT_RUN_ID_MAX];
    struct round *round;
    struct dispatch *dispatch;
    uint64_t heartbeat_ms;
    uint64_t born_ms;
    uint64_t timer_ms;     /* when the timer fires; UINT64_MAX: it is off */
    bool has_looked_again; /* the timer came late, and what waited was read first */
    uv_timer_t timer;
    struct journal_mark mark; /* what the journal has of it */
};

/* NULL: this server has no such run. */
struct run *run_find(const struct dispatch *dispatch, const char *id);
/* Takes the round, unless it returns NULL: out of memory. */
struct run *run_open(struct dispatch *dispatch, const char *id, struct round *round,
                     uint64_t heartbeat_ms);
/* NULL with *rc -ENOMEM, or -EINVAL: impossible limits in `hello`. */
struct run *run_create(struct dispatch *dispatch, const struct ct_hello *hello,
                       int *rc);
/* All nodes of the run that had this id are gone without a word: it is over, but for the
 * workers that may live until their leases end. 0 or what is wrong with this HELLO. */
int run_renew(struct run *run, const struct ct_hello *hello);
void run_forget(struct run *run);
/* Gives the command to the round and does what it says. The run may be gone afterwards. */
void run_step(struct run *run, const struct round_command *command);
/* The same in two: what the round returned, so that something can be said before the rest. */
int run_try(struct run *run, const struct round_command *command);
void run_execute(struct run *run);
/* After a command that was given to the round by hand. */
void run_arm_timer(struct run *run);

#endif
