/* SPDX-License-Identifier: Apache-2.0 */
/* The agents that talk to this server: frames become commands of their run's round (run.h).
 *
 *     first frame ── dispatch_take(conn) ── HELLO ── WELCOME ── JOIN ... ── on_close = GONE
 *                     with a token: CHALLENGE ┤ ├ PROOF  (admission.h)
 *   RESUME, HELLO: a member on a new connection ├── WELCOME, RESUMED ...
 *                                             └── REFUSE: version, wrong run, closed, limits
 *
 * A run begins with the first HELLO of its id, which brings its settings, and is forgotten with
 * its last member. */
#ifndef RENDEZVOUS_DISPATCH_H
#define RENDEZVOUS_DISPATCH_H

#include "rendezvous/admission.h"
#include "rendezvous/allegiance.h"
#include "rendezvous/conn.h"
#include "rendezvous/metrics.h"

struct journal_sink;
struct store_stats;

struct dispatch {
    struct conn_pool *pool;
    const char *only_run_id; /* kept; NULL: any run */
    struct admission_rules rules;
    const struct journal_sink *journal; /* kept; NULL: runs end with this server */
    struct gate *gate; /* kept; NULL: whatever is said goes out at once */
    bool is_standby;   /* another node hosts: agents are turned away */
    uint64_t self_key; /* of the launcher that this is in; 0: it has no heirs */
    uint64_t reign;    /* how often it has begun to serve in another one's place */
    struct allegiance allegiance; /* of a run that was forgotten; see standby.h */
    uint16_t endpoint_port;       /* != 0: START names it instead of a store_port */
    /* A world is about to get its START. May be NULL. */
    void (*on_start)(void *context);
    /* Who may use the worker store, when it is the endpoint (static backend): a piece of the
     * list. NULL: the agent of group rank 0 is told. */
    void (*on_members)(void *context, const struct ct_members *members);
    /* Adds the numbers of all stores to *sum. May be NULL. */
    void (*sum_stores)(void *context, struct store_stats *sum);
    /* A run was forgotten. May be NULL. */
    void (*on_forget)(void *context);
    void *context; /* kept, for all of them */
    struct metrics metrics;
    struct ct_list runs;
    size_t run_count;
    uint64_t last_id;
    uint64_t
        held_from_ms; /* when this server took over from another one; 0: it did not */
    /* The last run that somebody wanted to resume and nobody here knows, and when. */
    char unknown_run_id[CT_RUN_ID_MAX];
    uint64_t unknown_ms;
    struct ct_message in, out; /* too large for the stack of every callback */
};

/* `dispatch` is zeroed but for the settings above `runs`. */
void dispatch_init(struct dispatch *dispatch);
/* conn speaks frames from now on; `data` are the bytes that it has sent already. */
void dispatch_take(struct dispatch *dispatch, struct conn *conn, const uint8_t *data,
                   size_t length);
/* True while agents of a run that has its verdict are still connected: they read it. */
bool dispatch_has_verdicts_to_deliver(const struct dispatch *dispatch);
/* Another node hosts now: runs are forgotten, agents are turned away, nothing is said. */
void dispatch_yield(struct dispatch *dispatch);
/* After all connections are gone: frees what is left. The loop must run once more. */
void dispatch_close(struct dispatch *dispatch);

#endif
