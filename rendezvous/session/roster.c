/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/roster.h"

#include "rendezvous/store/allow_list.h"

enum {
    ADDRS_MAX = CT_MESSAGE_ADDRS_MAX + 1
};

void roster_init(struct roster *roster, const struct round *round)
{
    const size_t count = round->world_count ? round->world_count : 1;

    *roster = (struct roster){.round = round, .quota = ALLOW_LIST_MAX / count};
    if (roster->quota > ADDRS_MAX)
        roster->quota = ADDRS_MAX;
    if (roster->quota < 1)
        roster->quota = 1;
}

static void add(struct ct_members *out, const char *text)
{
    struct ct_addr addr;

    /* Link-local addresses have no scope here; loopback is always accepted. */
    if (ct_addr_parse(text, 0, &addr) == 0 && !ct_addr_is_loopback(&addr))
        ct_addr_key(out->keys[out->count++], &addr);
}

static void add_member(struct ct_members *out, const struct member *member,
                       size_t quota)
{
    add(out, member->link.seen_as);
    for (size_t i = 0; i < member->join.addr_count && i + 1 < quota; i++)
        add(out, member->join.addrs[i]);
}

bool roster_next(struct roster *roster, struct ct_members *out)
{
    const struct member_table *members = &roster->round->members;

    if (roster->is_over)
        return false;
    out->generation = roster->round->generation;
    out->count = 0;
    for (; roster->member < members->count &&
           out->count + ADDRS_MAX <= CT_MEMBER_KEYS_MAX;
         roster->member++)
        if (member_is_in_world(members->list[roster->member]) ||
            members->list[roster->member]->is_announced)
            add_member(out, members->list[roster->member], roster->quota);
    roster->is_over = roster->member == members->count;
    out->is_last = roster->is_over;
    return true;
}
