/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/members.h"

void members_add(struct members *members, const struct ct_members *piece)
{
    if (!members->follows &&
        (members->kept.generation != piece->generation || piece->is_last))
        members->kept = *piece;
    members->follows = !piece->is_last;
}

void members_break(struct members *members)
{
    members->follows = false;
}
