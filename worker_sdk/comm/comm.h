/* SPDX-License-Identifier: Apache-2.0 */
/* Process groups: how a set of ranks meets and what it does together.
 *
 * The public half is in ctrun.h ("Process groups and collectives"); this header is for the
 * session, which opens groups, and for tests. A group meets through a `struct ct_bootstrap`,
 * a table of the four things it asks of a store, so that this folder knows neither sessions
 * nor stores.
 *
 *     ct_group_open ── meet.c: who is where ──> a back end (backend.h): host.c or nccl.c
 *     ctrun_all_reduce ... ── checks ──> struct ct_call ──> the back end
 *
 * Thread: a group belongs to one thread at a time, except ctrun_group_abort(). */
#ifndef CT_COMM_COMM_H
#define CT_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/include/ctrun.h"

enum {
    CT_GROUP_MEMBERS_MAX = 4096, /* ranks of one group */
    CT_BOOTSTRAP_KEY_MAX = 128,  /* bytes of a key, NUL included */
};

/* What a group needs of a store that all ranks share. Every call blocks until deadline_ms
 * (monotonic, base/clock.h) at most and returns 0, CTRUN_E_TIMEOUT (the store stays usable),
 * or another negative code. */
struct ct_bootstrap {
    void *context; /* first argument of each call */
    int (*set)(void *context, const char *key, const void *value, size_t length,
               uint64_t deadline_ms, struct ctrun_error *err);
    /* Waits until key exists. *value is allocated: the caller frees it. */
    int (*get)(void *context, const char *key, void **value, size_t *length,
               uint64_t deadline_ms, struct ctrun_error *err);
    /* Waits until key exists. */
    int (*wait)(void *context, const char *key, uint64_t deadline_ms,
                struct ctrun_error *err);
};

/* Where this process stands in the world when a group is opened. */
struct ct_group_place {
    int rank;
    int world_size;
    /* These three name the group: the same on all ranks, and never used before in this store.
     * sequence counts the groups that this session has opened, failed ones included. */
    uint64_t generation;
    uint64_t restart_count;
    uint64_t sequence;
    struct ct_bootstrap bootstrap; /* borrowed for the call; unused in a world of one */
    /* NULL: find out which ranks share memory. Else ranks with equal text do (tests; or to cut
     * a host in parts). */
    const char *host_id;
};

/* ctrun_group_open() with a place instead of a session. A rank that is no member gets *out =
 * NULL and 0 at once. options may be NULL. */
int ct_group_open(struct ctrun_group **out, const struct ct_group_place *place,
                  const struct ctrun_group_options *options, struct ctrun_error *err);

#endif
