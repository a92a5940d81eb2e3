/* SPDX-License-Identifier: Apache-2.0 */
/* At which call of ctrun_should_stop() do all ranks stop? Agreed through one key of the store; likewise
 * ctrun_should_grow() with another key.
 *
 *     "go N"     all ranks continue to their N-th call and look at the key again
 *     "stop N"   all ranks stop at their N-th call
 *
 * No rank passes call N of a "go N" before the key holds another value, so whoever was asked to
 * stop may turn "go N" into "stop N" at any time, and every rank reads that when it comes there.
 * Who comes first and was not asked turns it into a later "go". All changes are compare-and-set:
 * one wins, the others read what it wrote. Nobody ever waits for another rank, which may itself
 * wait for us in a collective. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/error.h"

enum {
    CT_STOP_VALUE_MAX = 32,
    CT_STOP_LOOK_EVERY_MS = 100, /* by the pace of late */
};

struct ct_stop_point {
    uint64_t call;   /* the calls of this rank so far */
    uint64_t next;   /* see above; 0: the key was never looked at */
    bool is_stop;    /* "stop next" */
    uint64_t looked; /* the call at which we last looked, and when */
    uint64_t looked_ms;
};

/* Compare-and-set as a TCPStore has it: *actual is what the key holds afterwards. An empty
 * `expected` is a key that is not there. */
struct ct_stop_key {
    int (*swap)(void *context, const char *expected, const char *desired,
                char actual[CT_STOP_VALUE_MAX], struct ctrun_error *err);
    void *context;
    const char *name; /* of the function that is called, for people */
};

/* One call: 1 stop, 0 continue, or a negative code; CTRUN_E_MISMATCH when the ranks do not call
 * equally often. */
int ct_stop_point_check(struct ct_stop_point *point, bool is_asked, uint64_t now_ms,
                        const struct ct_stop_key *key, struct ctrun_error *err);
