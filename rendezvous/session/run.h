/* SPDX-License-Identifier: Apache-2.0 */
/* A run: its round, the timer that wakes it, and the execution of what the round decides.
 *
 *     run_create ── run_step, run_step, ... ── run_forget
 *
 * It begins with the first HELLO of its id, which brings its settings, and is forgotten with its
 * last member. */
#pragma once

#include <uv.h>

#include "rendezvous/journal/journal.h"
#include "rendezvous/round/round.h"
#include "rendezvous/session/counters.h"
#include "rendezvous/session/rank_metrics.h"
#include "rendezvous/session/run_memory.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/seldom.h"

struct journal_sink;

/* All runs of one server, and what they share. */
struct runs {
    uv_loop_t *loop;                    /* kept */
    const struct journal_sink *journal; /* kept; NULL: runs end with this server */
    const char *const *expected;        /* kept: hosts that should come; may be NULL */
    size_t expected_count;
    uint16_t endpoint_port; /* != 0: START names it instead of a store_port */
    /* A world is about to get its START. May be NULL. */
    void (*on_start)(void *context);
    /* Who may use the worker store, when it is the endpoint (static backend): a piece of the
     * list. NULL: the agent of group rank 0 is informed. */
    void (*on_members)(void *context, const struct ct_members *members);
    /* A run was forgotten. May be NULL. */
    void (*on_forget)(void *context);
    void *context; /* kept, for all of them */
    struct ct_list list;
    size_t count;
    struct ct_often comings,
        changes; /* lines about agents and runs, and about rounds */
    struct ct_often events;
    struct counters counters;
    size_t metric_count; /* values of ranks, of all runs */
    struct run_memory memory;
    uint64_t last_id; /* of a member */
    uint64_t
        held_from_ms;  /* workers of another server's may live since then; 0: none */
    uint64_t began_ms; /* when this server began to serve */
    bool has_ha;       /* the run may live elsewhere, in an etcd of its own */
    bool is_elected;   /* it has the journal of those before */
};

struct run {
    struct ct_list node;
    char id[CT_RUN_ID_MAX];
    struct round *round;
    struct runs *all;
    uint64_t heartbeat_ms;
    struct ct_addr founder; /* who sent the first HELLO; AF_UNSPEC: unknown */
    uint64_t born_ms;
    uint64_t timer_ms;       /* when the timer fires; UINT64_MAX: it is off */
    uint64_t listens_for_ms; /* still, before any world; 0: no more */
    uint64_t looked_ms;      /* when it was last seen to listen */
    bool has_looked_again;   /* the timer came late, and what waited was read first */
    uv_timer_t timer;
    struct journal_mark mark; /* what the journal has of it */
    struct rank_metrics metrics, node_metrics;
};

/* `runs` is zeroed but for the settings above `list`. */
void runs_init(struct runs *runs);
/* Forgets them all. The loop must run once more. */
void runs_close(struct runs *runs);
/* For a next server that cannot hear of them: since when workers may live that this one leaves behind, on
 * other nodes; 0: none, or that one has our journal. */
uint64_t runs_outlived_from_ms(const struct runs *runs);
/* NULL: this server has no such run. */
struct run *run_find(const struct runs *runs, const char *id);
/* Takes the round, unless it returns NULL: out of memory. */
struct run *run_open(struct runs *runs, const char *id, struct round *round,
                     uint64_t heartbeat_ms);
/* NULL with *rc -ENOMEM, or -EINVAL: impossible limits in `hello`. */
struct run *run_create(struct runs *runs, const struct ct_hello *hello, int *rc);
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
