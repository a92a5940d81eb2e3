/* SPDX-License-Identifier: Apache-2.0 */
/* A node whose worker failed first in two rounds running makes room for a spare: what is wrong may
 * be the machine. Without a spare it stays. It is refused when it offers itself again, and its
 * launcher ends. */
#include "rendezvous/round_private.h"
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

    if (!culprit || failures_is_victim(failure))
        return false; /* whose fault it was is not known */
    is_again = round->culprit_id == culprit->link.id;
    round->culprit_id = culprit->link.id;
    if (!is_again || !has_spare(round))
        return false;
    culprit->is_excluded = true;
    round_note(round, culprit);
    return true;
}

static struct member *find_excluded(const struct round *round)
{
    for (size_t i = 0; i < round->members.count; i++)
        if (round->members.list[i]->is_excluded)
            return round->members.list[i];
    return NULL;
}

void round_tell_excluded(const struct round *round, struct ct_failure *cause)
{
    const struct member *member = find_excluded(round);
    const size_t used = strlen(cause->facts);

    if (member &&
        ct_format(
            cause->facts + used, sizeof cause->facts - used,
            "excluded\t%s excluded: it failed first in two rounds running, and a spare "
            "takes its place\n",
            member->link.host) < 0)
        cause->facts[used] = '\0';
}

void round_refuse_excluded(struct round *round, uint64_t now_ms)
{
    struct member *member = find_excluded(round);
    char host[CT_HOST_MAX];

    if (!member || member->state != MEMBER_READY)
        return;
    (void)ct_copy(host, sizeof host, member->link.host); /* same size */
    round_set_survivor(round, member, false);
    round_refuse(
        round, member, CTRUN_E_EXCLUDED,
        "this node failed first in two rounds running, and a spare has taken its place",
        now_ms);
    host_list_remove(&round->missing, host); /* nobody waits for it */
}
