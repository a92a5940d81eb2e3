/* SPDX-License-Identifier: Apache-2.0 */
/* At which call of ctrun_should_stop() do all ranks stop? The ranks agree through one key of the
 * store; ctrun_should_grow() works the same way with another key.
 *
 *     "go N"     all ranks continue to their N-th call and look at the key again
 *     "stop N"   all ranks stop at their N-th call
 *
 * No rank passes call N of a "go N" before the key holds another value, so a rank that was asked to
 * stop may replace "go N" by "stop N" at any time, and every rank reads that at its call N. The
 * first rank at call N that was not asked replaces it by a later "go". All changes are
 * compare-and-set: one rank wins, the others read what it wrote. No rank ever waits for another
 * rank here, because that rank may wait for us in a collective. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"

enum {
    CT_STOP_VALUE_MAX = 32,
    CT_STOP_LOOK_EVERY_MS = 100, /* estimated from recent calls */
};

struct ct_stop_point {
    uint64_t call;   /* the calls of this rank so far */
    uint64_t next;   /* N of the key; 0: the key was never read */
    bool is_stop;    /* the key holds "stop N" */
    uint64_t looked; /* the call at which we last read the key, and when */
    uint64_t looked_ms;
};

/* Compare-and-set of a TCPStore: *actual is what the key holds afterwards. An empty `expected`
 * means that the key does not exist. */
struct ct_stop_key {
    int (*swap)(void *context, const char *expected, const char *desired,
                char actual[CT_STOP_VALUE_MAX], struct ctrun_error *err);
    void *context;
    const char *name; /* of the public function, for messages */
};

/* Called at each call of the public function: 1 stop, 0 continue, or a negative code;
 * CTRUN_E_MISMATCH when the key does not follow this rank: the store lost it, or the ranks do not
 * call equally often. */
int ct_stop_point_check(struct ct_stop_point *point, bool is_asked, uint64_t now_ms,
                        const struct ct_stop_key *key, struct ctrun_error *err);
