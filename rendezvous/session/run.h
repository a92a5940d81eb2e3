/* SPDX-License-Identifier: Apache-2.0 */
/* A run: its round, the round's timer, and the execution of the round's actions.
 *
 *     run_create ── run_step, run_step, ... ── run_forget
 *
 * A run begins with the first HELLO of its id, which has its settings, and is forgotten with its
 * last member. */
#pragma once

#include <uv.h>

#include "rendezvous/journal/journal.h"
#include "rendezvous/round/round.h"
#include "rendezvous/session/rank_metrics.h"
#include "rendezvous/session/run_memory.h"
#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/seldom.h"

/* Counters of all runs of this server; metrics.h prints them. */
struct counters {
    uint64_t rounds_started;
    uint64_t restarts; /* that used a restart of the budget */
    uint64_t failures[CT_CAUSE_LAST + 1];
    uint64_t metrics_refused; /* values of ranks for which there was no room */
    uint64_t lag_ms;          /* how late the last timer of a round was */
    uint64_t lag_max_ms;
};

/* All runs of one server, and their common settings. */
struct runs {
    uv_loop_t *loop;                    /* kept */
    const struct journal_sink *journal; /* borrowed; NULL: runs end with this server */
    const char *const *expected; /* borrowed: hosts that should join; may be NULL */
    size_t expected_count;
    const int *expected_tasks; /* as in struct round_settings */
    uint16_t endpoint_port;    /* != 0: START names it instead of a store_port */
    /* A world is about to get its START. May be NULL. */
    void (*on_start)(void *context);
    /* With the static backend, where the endpoint is the worker store: gets a part of the list of
     * nodes that may use it. NULL: the agent of group rank 0 gets the list. */
    void (*on_members)(void *context, const struct ct_members *members);
    /* A run was forgotten. May be NULL. */
    void (*on_forget)(void *context);
    void *context; /* borrowed, for these callbacks */
    struct ct_list list;
    size_t count;
    struct ct_often comings,
        changes; /* rate limits of log lines: about agents and runs, and about rounds */
    struct ct_often events;
    struct counters counters;
    size_t metric_count; /* values of ranks, of all runs */
    struct run_memory memory;
    uint64_t last_id; /* highest member id */
    uint64_t
        held_from_ms; /* workers of another server's run may live since then; 0: none */
    uint64_t began_ms; /* when this server began to serve */
    bool has_ha;       /* the run may be served elsewhere, with an own etcd */
    bool is_elected;   /* it has the journal of earlier servers */
    bool is_in_ctrund;
};

struct run {
    struct ct_list node;
    char id[CT_RUN_ID_MAX];
    struct round *round;
    struct runs *all;
    uint64_t heartbeat_ms;
    struct ct_addr founder; /* sender of the first HELLO; AF_UNSPEC: unknown */
    uint64_t born_ms;
    uint64_t timer_ms;       /* when the timer fires; UINT64_MAX: it is off */
    uint64_t listens_for_ms; /* remaining wait before the first world; 0: none */
    uint64_t looked_ms;      /* last time that listens_for_ms was reduced */
    bool has_looked_again;   /* the timer was late; waiting messages were read first */
    uv_timer_t timer;
    struct journal_mark mark; /* what the journal has of the run */
    struct rank_metrics metrics, node_metrics;
};

/* `runs` is zeroed except the settings above `list`. */
void runs_init(struct runs *runs);
/* Forgets all runs. The loop must run once more. */
void runs_close(struct runs *runs);
/* For a next server that does not know these runs: since when workers that this server leaves
 * behind on other nodes may live. 0: none, or the next server has our journal. */
uint64_t runs_outlived_from_ms(const struct runs *runs);
/* NULL: this server has no such run. */
struct run *run_find(const struct runs *runs, const char *id);
/* Takes ownership of the round, unless it returns NULL: out of memory. */
struct run *run_open(struct runs *runs, const char *id, struct round *round,
                     uint64_t heartbeat_ms);
/* NULL with *rc -ENOMEM, or -EINVAL: impossible limits in `hello`. */
struct run *run_create(struct runs *runs, const struct ct_hello *hello, int *rc);
/* Begins a new run of this id, when all nodes of the old one are gone without LEAVE: workers of the
 * old run may live until their leases end. 0, -ENOMEM, or -EINVAL: impossible limits in `hello`. */
int run_renew(struct run *run, const struct ct_hello *hello);
void run_forget(struct run *run);
/* Gives the command to the round and executes its actions. The run may be freed afterwards. */
void run_step(struct run *run, const struct round_command *command);
/* run_step() in two parts, so that the caller can send a message in between: run_try() returns the
 * result of the round. */
int run_try(struct run *run, const struct round_command *command);
void run_execute(struct run *run);
/* To be called after a command that was given directly to the round. */
void run_arm_timer(struct run *run);
