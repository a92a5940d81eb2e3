/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong in one round, in the order in which the server heard of it.
 *
 * The first one is the root cause, unless it only says that another worker was gone
 * (E_PEER_LOST): such a victim stands behind those that were not. Deaths that we caused (CT_CAUSE_STOPPED) are consequences:
 * they are listed behind all others, never in front. A failure that is reported twice, at once
 * and in the STOPPED of its node, counts once. Pure. */
#ifndef RENDEZVOUS_FAILURES_H
#define RENDEZVOUS_FAILURES_H

#include "worker_sdk/wire/message.h"

struct failures {
    size_t cause_count;
    size_t consequence_count;
    struct ct_failure
        causes[CT_FAILURES_MAX]; /* the first ones: later ones find no room */
    struct ct_failure consequences[CT_FAILURES_MAX];
};

void failures_clear(struct failures *failures);
void failures_add(struct failures *failures, const struct ct_failure *failure);
/* The new root cause: what was taken for one follows from it. */
void failures_add_root(struct failures *failures, const struct ct_failure *failure);
/* True when it only says that another worker was gone. */
bool failures_is_victim(const struct ct_failure *failure);
/* The root cause, or NULL when nothing failed on its own account. Borrowed. */
const struct ct_failure *failures_get_root(const struct failures *failures);
/* Copies causes, then consequences as far as there is room. Returns how many. */
uint8_t failures_copy(const struct failures *failures, struct ct_failure *out,
                      uint8_t max);
/* What a launcher ends with because of this: a code of its own, 128 + signal, 137 for OOM,
 * 126 or 127 for exec, the codes of wire/contract.h for the rest. Never 0. */
uint8_t failures_exit_code(const struct ct_failure *failure);

#endif
