/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a round, as the server lists them, in pieces. A large job's list has several; only
 * the first piece of a list is kept, since --survive=torch needs hosts only if there are few.
 * Pure. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

struct members {
    struct ct_members kept; /* generation 0: no list yet */
    bool follows;           /* the last message was a piece, but not the last piece */
};

void members_add(struct members *members, const struct ct_members *piece);
/* The next piece comes over another connection, on which a list begins with its first piece. */
void members_break(struct members *members);
