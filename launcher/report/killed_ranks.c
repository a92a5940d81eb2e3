/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/killed_ranks.h"

#include "agent/watch/rank_list.h"
#include "worker_sdk/base/str.h"

static int named(const struct killed_ranks *killed)
{
    return killed->count < KILLED_RANKS_NAMED ? killed->count : KILLED_RANKS_NAMED;
}

/* In a full list the last one makes room. */
void killed_ranks_add(struct killed_ranks *killed, int rank)
{
    int *ranks = killed->ranks;
    int at = named(killed);

    killed->count++;
    if (at == KILLED_RANKS_NAMED && ranks[--at] < rank)
        return;
    for (; at > 0 && ranks[at - 1] > rank; at--)
        ranks[at] = ranks[at - 1];
    ranks[at] = rank;
}

void killed_ranks_format(char *dst, const struct killed_ranks *killed)
{
    const bool is_many = killed->count > 1;
    char list[KILLED_RANKS_TEXT_MAX / 2];

    *dst = '\0';
    if (killed->count == 0)
        return;
    rank_list_format(list, sizeof list, killed->ranks, named(killed)); /* fits */
    (void)ct_format(dst, KILLED_RANKS_TEXT_MAX, "rank%s %s", is_many ? "s" : "", list);
    if (killed->count > named(killed))
        (void)ct_append(dst, KILLED_RANKS_TEXT_MAX, " and %d more",
                        killed->count - named(killed)); /* fits */
    (void)ct_append(dst, KILLED_RANKS_TEXT_MAX,
                    " %s killed before %s had ended: %s checkpoint may be incomplete",
                    is_many ? "were" : "was", is_many ? "they" : "it",
                    is_many ? "their" : "its");
}
