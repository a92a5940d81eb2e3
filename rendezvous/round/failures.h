/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong in one round, in the order in which the server heard of it.
 *
 * The report of the root cause may come later than that of a failure that follows from it. So each
 * report has an age, and a failure that certainly happened before another stands before it. No
 * clocks are compared: `happened_ms` is when the message came, less its age; the message took a
 * round trip (`doubt_ms`) at most. Failures that are closer together than that, or have no age,
 * stay in the order in which they came.
 *
 * The first failure is the root cause, unless it only says that another worker was gone
 * (E_PEER_LOST): such a victim stands behind the failures that are none. Workers that ctrun stopped
 * (CT_CAUSE_STOPPED) are consequences: they are listed behind all failures. A failure that is
 * reported twice, at once and in the STOPPED of its node, counts once. Where the root cause is a stuck rank, a worker that
 * had ended with 0 before the report ended before it: the others may have begun to wait for it since. Pure. */
#pragma once

#include "worker_sdk/wire/message.h"

struct failures {
    size_t cause_count;
    size_t consequence_count;
    struct ct_more more; /* reported at the end of nodes, without room here */
    uint64_t hang_ms;    /* when the first report of a stuck rank came; 0: none has */
    struct ct_failure
        causes[CT_FAILURES_MAX]; /* the first ones; later ones are only counted */
    struct ct_failure consequences[CT_FAILURES_MAX];
};

/* About the message that reported the failures. */
struct failures_arrival {
    uint64_t at_ms;
    uint64_t rtt_ms;
    bool is_end;     /* the last report of its node in this round */
    bool is_decided; /* decided: what follows; a new root cause comes too late */
};

void failures_clear(struct failures *failures);
void failures_add(struct failures *failures, const struct ct_failure *failure);
/* The same for a failure that a node reported, with or without an age. */
void failures_add_reported(struct failures *failures, const struct ct_failure *failure,
                           const struct failures_arrival *arrival);
/* Adds a new root cause: the failures in the list so far follow from it. */
void failures_add_root(struct failures *failures, const struct ct_failure *failure);
/* The root cause, or NULL when nothing failed on its own account. Borrowed. */
const struct ct_failure *failures_get_root(const struct failures *failures);
/* Adds the counts of failures for which a node's message had no room. */
void failures_add_more(struct failures *failures, const struct ct_more *more);
/* Copies causes, with `later_ms`, then consequences as far as there is room. Returns how many. */
uint8_t failures_copy(const struct failures *failures, struct ct_failure *out,
                      uint8_t max);
/* Counts the failures that failures_copy() with CT_FAILURES_MAX leaves out. */
struct ct_more failures_count_more(const struct failures *failures);
/* The exit code of a launcher for this failure: the worker's own code, 128 + signal, 137 for OOM,
 * 126 or 127 for exec, the codes of wire/contract.h for the rest. Never 0. */
uint8_t failures_exit_code(const struct ct_failure *failure);
