/* SPDX-License-Identifier: Apache-2.0 */
/* How large worlds are: limits that people change while the run lives, units, and who is
 * asked to leave. */
#include <string.h>

#include "rendezvous/host_list.h"
#include "rendezvous/limits.h"
#include "rendezvous/round_private.h"
#include "worker_sdk/base/str.h"

size_t round_world_size(const struct round *round, size_t ready)
{
    const struct round_settings *settings = &round->settings;
    size_t size = ready < settings->max_nodes ? ready : settings->max_nodes;

    if (settings->node_unit > 1)
        size -= size % settings->node_unit;
    return size < settings->min_nodes ? 0 : size;
}

bool round_has_wrong_size(const struct round *round)
{
    const size_t in_world = round->counts[MEMBER_RUNNING] +
                            round->counts[MEMBER_SUCCEEDED];
    const size_t possible = round_world_size(round,
                                             in_world + round->counts[MEMBER_READY]);

    return possible > round->world_count ||
           round->world_count > round->settings.max_nodes;
}

static bool is_possible(const struct round *round, const struct ct_resize *resize)
{
    const uint32_t unit = round->settings.node_unit;

    return resize->min_nodes >= 1 && resize->max_nodes <= ROUND_NODES_MAX &&
           resize->max_nodes - (unit > 1 ? resize->max_nodes % unit : 0) >=
               resize->min_nodes;
}

/* A minimum above the nodes that are there counts from the next round on. */
void round_on_resize(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_resize *resize = &message->resize;

    if (round->state == ROUND_CLOSED || round->outcome || !is_possible(round, resize))
        return; /* who asked was told so by its agent */
    round->settings.min_nodes = resize->min_nodes;
    round->settings.max_nodes = resize->max_nodes;
    round->resize = *resize;
    (void)ct_copy(round->resize.by, sizeof round->resize.by, member->link.host);
    for (size_t i = 0; i < round->members.count; i++) {
        if (!round->members.list[i]->is_away)
            round_push_to(round, ROUND_SEND_RESIZE, round->members.list[i]);
    }
    if (round->state == ROUND_RUNNING && !round->is_finishing &&
        round_has_wrong_size(round))
        round_stop_world(round, CT_STOP_MEMBERSHIP, NULL, now_ms);
    if (round->state == ROUND_FORMING)
        round_announce(round, now_ms);
    round_start_if_complete(round, now_ms);
}

/* Nobody is called so: who asked wants to know how they are called. */
static void name_members(const struct round *round, char hosts[CT_MISSING_MAX])
{
    struct host_list list = {0};

    for (size_t i = 0; i < round->members.count; i++)
        host_list_add(&list, round->members.list[i]->link.host);
    host_list_format(&list, hosts, CT_MISSING_MAX);
    host_list_clear(&list);
}

void round_on_drain(struct round *round, struct member *member,
                    const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_drain *drain = &message->drain;

    (void)now_ms;
    round->drain = *drain;
    round->drained = (struct ct_drain){.ticket = drain->ticket, .is_answer = true};
    (void)ct_copy(round->drained.host, sizeof round->drained.host, drain->host);
    if (drain->ticket)
        round_push_to(round, ROUND_SEND_DRAINED, member);
    for (size_t i = 0; i < round->members.count; i++) {
        const struct member *other = round->members.list[i];

        if (!other->is_away &&
            (!drain->host[0] || strcmp(drain->host, other->link.host) == 0)) {
            round_push_to(round, ROUND_SEND_DRAIN, other);
            round->drained.told++;
        }
    }
    if (round->drained.told == 0)
        name_members(round, round->drained.hosts);
}
