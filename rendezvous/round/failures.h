/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong in one round, in the order in which the server heard of it.
 *
 * A node may need longer to tell than another one whose worker failed because of it: it says how
 * long ago that was, so that what happened before another failure for certain stands before it.
 * No clocks are compared: `happened_ms` is when the message came, less its age; it had been on its
 * way for a round trip (`doubt_ms`) at most. Closer together than that, or without an age,
 * they stay as they came.
 *
 * The first one is the root cause, unless it only says that another worker was gone
 * (E_PEER_LOST): such a victim stands behind those that were not. Deaths that we caused
 * (CT_CAUSE_STOPPED) are consequences: they are listed behind all others, never in front. A
 * failure that is reported twice, at once and in the STOPPED of its node, counts once. Pure. */
#pragma once

#include "worker_sdk/wire/message.h"

struct failures {
    size_t cause_count;
    size_t consequence_count;
    struct ct_more more; /* that nodes have reported at their end, and found no room */
    struct ct_failure
        causes[CT_FAILURES_MAX]; /* the first ones: later ones find no room */
    struct ct_failure consequences[CT_FAILURES_MAX];
};

/* What a message that tells of failures has come with. */
struct failures_arrival {
    uint64_t at_ms;
    uint64_t rtt_ms;
    bool is_end;     /* the last that its node tells of this round */
    bool is_decided; /* what follows from the root cause: another one comes too late */
};

void failures_clear(struct failures *failures);
void failures_add(struct failures *failures, const struct ct_failure *failure);
/* The same for what a node tells, with an age or without. */
void failures_add_reported(struct failures *failures, const struct ct_failure *failure,
                           const struct failures_arrival *arrival);
/* The new root cause: what was taken for one follows from it. */
void failures_add_root(struct failures *failures, const struct ct_failure *failure);
/* True when it only says that another worker was gone. */
bool failures_is_victim(const struct ct_failure *failure);
/* The root cause, or NULL when nothing failed on its own account. Borrowed. */
const struct ct_failure *failures_get_root(const struct failures *failures);
/* What a node had no room for itself. */
void failures_add_more(struct failures *failures, const struct ct_more *more);
/* Copies causes, with `later_ms`, then consequences as far as there is room. Returns how many. */
uint8_t failures_copy(const struct failures *failures, struct ct_failure *out,
                      uint8_t max);
/* Those that failures_copy() with CT_FAILURES_MAX leaves out. */
struct ct_more failures_count_more(const struct failures *failures);
/* What a launcher ends with because of this: a code of its own, 128 + signal, 137 for OOM,
 * 126 or 127 for exec, the codes of wire/contract.h for the rest. Never 0. */
uint8_t failures_exit_code(const struct ct_failure *failure);
