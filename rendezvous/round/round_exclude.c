/* SPDX-License-Identifier: Apache-2.0 */
/* A node whose worker failed first in two rounds running makes room for a spare: what is wrong may
 * be the machine. Without a spare it stays, and so does the node that serves, whose end would be the
 * run's. It is refused when it offers itself again, and its launcher ends. */
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/str.h"

static struct member *find_culprit(const struct round *round,
                                   const struct ct_failure *failure)
{
    for (size_t i = 0; i < round->members.count; i++) {
        struct member *member = round->members.list[i];

        if (member->start.generation == round->generation && failure->node_rank >= 0 &&
            member->start.group_rank == (uint32_t)failure->node_rank)
            return member;
    }
    return NULL;
}

/* A standby: READY, and not one of this world that is already back. */
static bool has_spare(const struct round *round)
{
    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        if (member->state == MEMBER_READY &&
            member->start.generation != round->generation)
            return true;
    }
    return false;
}

bool round_exclude(struct round *round, const struct ct_failure *failure)
{
    struct member *culprit = find_culprit(round, failure);
    bool is_again;

    round->culprit_is_kept = false;
    if (!culprit || failures_is_victim(failure))
        return false; /* whose fault it was is not known */
    is_again = round->culprit_id == culprit->link.id;
    round->culprit_id = culprit->link.id;
    if (!is_again || !has_spare(round))
        return false;
    round->culprit_is_kept = culprit->link.serves;
    if (culprit->link.serves)
        return false;
    culprit->is_excluded = true;
    round_note(round, culprit);
    return true;
}

struct member *round_find_excluded(const struct round *round)
{
    for (size_t i = 0; i < round->members.count; i++)
        if (round->members.list[i]->is_excluded)
            return round->members.list[i];
    return NULL;
}

static const struct member *find_kept(const struct round *round)
{
    return round->culprit_is_kept ? member_find(&round->members, round->culprit_id)
                                  : NULL;
}

void round_tell_excluded(const struct round *round, struct ct_stop *stop)
{
    const struct member *excluded = round_find_excluded(round),
                        *kept = find_kept(round);
    const struct member *culprit = excluded ? excluded : kept;

    if (!culprit)
        return;
    stop->culprit_fate = excluded ? CT_CULPRIT_EXCLUDED : CT_CULPRIT_KEPT;
    (void)ct_copy(stop->culprit, sizeof stop->culprit,
                  culprit->link.host); /* same size */
}
