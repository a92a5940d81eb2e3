/* SPDX-License-Identifier: Apache-2.0 */
/* The hosts of a round, as the server lists them: in pieces, of which one piece is kept. A large job's list has
 * several; the first of a list is kept, since --survive=torch needs hosts only where there are few. Pure. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

struct members {
    struct ct_members kept; /* generation 0: not told */
    bool follows;           /* what came last was a piece, not the last one */
};

void members_add(struct members *members, const struct ct_members *piece);
/* What follows comes over another connection, where a list begins with its first piece. */
void members_break(struct members *members);
