/* SPDX-License-Identifier: Apache-2.0 */
/* Before the workers of a world start: its nodes prove that they reach each other, where they could
 * do so on several networks (networks.h). A cut one ends the round before it has a worker, and costs
 * no restart. */
#include "rendezvous/round/round_private.h"

#include <string.h>

#include "worker_sdk/base/str.h"

static bool is_proven(const struct round *round)
{
    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];

        if (member->state == MEMBER_RUNNING && !member->has_ways)
            return false;
    }
    return true;
}

/* Those who know already are told again after a resume, which does no harm. */
static void go(struct round *round)
{
    round->way = (struct ct_way){.generation = round->generation};
    for (size_t i = 0; i < round->members.count; i++)
        if (round->members.list[i]->state == MEMBER_RUNNING)
            round_push_to(round, ROUND_SEND_WAY, round->members.list[i]);
}

void round_on_way(struct round *round, struct member *member,
                  const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_way *way = message->way;
    const struct ct_failure cut = round_name_node(round, member, CT_CAUSE_NONE,
                                                  way->cut);

    if (round->state != ROUND_RUNNING || member->state != MEMBER_RUNNING ||
        way->generation != round->generation || member->start.ways != CT_WAYS_PROVE)
        return;
    if (way->cut[0] && !round->is_finishing &&
        networks_cut(&round->networks, member->start.master_addr)) {
        round_stop_world(round, CT_STOP_NETWORK, &cut, now_ms);
        return;
    }
    member->has_ways = true;
    if (is_proven(round))
        go(round);
}
