/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/heir_list.h"

#include <string.h>

#include "worker_sdk/base/addr.h"
#include "worker_sdk/base/str.h"

static void add_address(struct ct_roster_node *out, const char *text)
{
    for (size_t i = 0; i < out->addr_count; i++) {
        if (strcmp(out->addrs[i], text) == 0)
            return;
    }
    if (text[0] && out->addr_count < CT_ROSTER_ADDRS_MAX)
        (void)ct_copy(out->addrs[out->addr_count++], CT_ADDR_TEXT_MAX,
                      text); /* same size */
}

static bool is_loopback(const char *text)
{
    struct ct_addr addr;

    return ct_addr_parse(text, 0, &addr) == 0 && ct_addr_is_loopback(&addr);
}

/* Where it is seen, then where it says it is; loopback last: it is of use on one host only. */
static void fill_node(struct ct_roster_node *out, const struct member *member)
{
    const bool is_near = is_loopback(member->link.seen_as);

    *out = (struct ct_roster_node){.key = member->claim.key,
                                   .port = member->claim.port};
    (void)ct_copy(out->host, sizeof out->host, member->link.host); /* same size */
    if (!is_near)
        add_address(out, member->link.seen_as);
    for (size_t i = 0;
         i < member->join.addr_count && i + 1 < (size_t)CT_ROSTER_ADDRS_MAX; i++)
        add_address(out, member->join.addrs[i]);
    if (is_near)
        add_address(out, member->link.seen_as);
}

bool heir_list_fill(struct ct_roster *out, const struct round *round, size_t first)
{
    const size_t total = round->allegiance.count;
    const size_t left = total > first ? total - first : 0;

    memset(out, 0, sizeof *out);
    out->generation = round->allegiance.generation;
    out->min_nodes = round->allegiance.min_nodes;
    out->total = (uint16_t)total;
    out->first = (uint16_t)first;
    out->count = (uint8_t)(left < CT_ROSTER_NODES_MAX ? left : CT_ROSTER_NODES_MAX);
    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *member = round->members.list[i];
        const size_t rank = member->start.group_rank;

        if (!member_is_in_world(member))
            continue;
        if (member->claim.key == round->settings.self_key)
            out->leader = (uint16_t)rank;
        if (rank >= first && rank - first < out->count)
            fill_node(&out->nodes[rank - first], member);
    }
    return out->count > 0;
}
