/* SPDX-License-Identifier: Apache-2.0 */
/* What users ask of a run with ctrunctl: another size, nodes that leave, a new round. */
#include "rendezvous/report/host_list.h"
#include "rendezvous/round/round_limits.h"
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/str.h"

/* ---- Size, leaving ----------------------------------------------------------------------- */

static bool is_possible(const struct round *round, const struct ct_resize *resize)
{
    const uint32_t unit = round->settings.node_unit;

    return resize->min_nodes >= 1 && resize->max_nodes <= ROUND_NODES_MAX &&
           resize->max_nodes - (unit > 1 ? resize->max_nodes % unit : 0) >=
               resize->min_nodes;
}

/* A minimum above the present number of nodes counts from the next round on. */
void round_on_resize(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_resize *resize = message->resize;

    if (round->state == ROUND_CLOSED || round->outcome || !is_possible(round, resize))
        return; /* the agent of the user has answered already */
    round->settings.min_nodes = resize->min_nodes;
    round->settings.max_nodes = resize->max_nodes;
    round->resize = *resize;
    (void)ct_copy(round->resize.by, sizeof round->resize.by, member->link.host);
    member_for_each(it, &round->members) {
        if (!it->is_away)
            round_push_to(round, ROUND_SEND_RESIZE, it);
    }
    if (round->state == ROUND_RUNNING && !round->is_finishing &&
        round_has_wrong_size(round))
        round_stop_world(round, CT_STOP_MEMBERSHIP, NULL, now_ms);
    if (round->state == ROUND_FORMING)
        round_announce(round, now_ms);
    round_start_if_complete(round, now_ms);
}

/* Without a resize that this server knows of, the limits may be those of a server before it: then they are not those
 * of HELLO. */
void round_send_limits(struct round *round, struct member *member)
{
    const struct round_settings *settings = &round->settings;
    const struct member_link *link = &member->link;

    if (round->resize.max_nodes == 0 &&
        (link->max_nodes == 0 || (link->min_nodes == settings->min_nodes &&
                                  link->max_nodes == settings->max_nodes)))
        return;
    round->resize.min_nodes = settings->min_nodes;
    round->resize.max_nodes = settings->max_nodes;
    round_push_to(round, ROUND_SEND_RESIZE, member);
}

/* No member has this name: lists the names that there are. */
static void name_members(const struct round *round, char hosts[CT_MISSING_MAX])
{
    struct host_list list = {0};

    member_for_each(member, &round->members)
        host_list_add(&list, member->link.host);
    host_list_format(&list, hosts, CT_MISSING_MAX);
    host_list_clear(&list);
}

void round_on_drain(struct round *round, struct member *member,
                    const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_drain *drain = message->drain;

    (void)now_ms;
    round->drain = *drain;
    round->drained = (struct ct_drain){.ticket = drain->ticket, .is_answer = true};
    (void)ct_copy(round->drained.host, sizeof round->drained.host, drain->host);
    if (drain->ticket)
        round_push_to(round, ROUND_SEND_DRAINED, member);
    member_for_each(other, &round->members) {
        if (!other->is_away &&
            (!drain->host[0] || strcmp(drain->host, other->link.host) == 0)) {
            round_push_to(round, ROUND_SEND_DRAIN, other);
            round->drained.sent_to++;
        }
    }
    if (round->drained.sent_to == 0)
        name_members(round, round->drained.hosts);
}

/* ---- A new round ------------------------------------------------------------------------- */

/* NULL: it can be restarted now. */
static const char *why_not(const struct round *round)
{
    if (round->state == ROUND_CLOSED || round->outcome)
        return "the run is ending";
    if (round->state == ROUND_FORMING)
        return "no worker runs yet: the run waits for nodes";
    if (round->state == ROUND_STOPPING)
        return "its round is being stopped already, and a new one follows";
    if (round->is_finishing)
        return "the run is ending: the workers of a node have succeeded";
    return NULL;
}

/* The members stay, nothing has failed, and no restart of the budget is used. What is journalled is the
 * world that stops, as for every other stop. */
void round_on_restart(struct round *round, struct member *member,
                      const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_restart *restart = message->restart;
    const struct ct_failure asked = round_name_node(round, member, CT_CAUSE_NONE,
                                                    restart->reason);
    const char *refusal = why_not(round);

    round->restart = (struct ct_restart){.ticket = restart->ticket, .is_answer = true};
    if (refusal)
        (void)ct_copy(round->restart.refusal, sizeof round->restart.refusal, refusal);
    else
        round->restart.generation = round->generation;
    if (restart->ticket)
        round_push_to(round, ROUND_SEND_RESTART, member);
    if (!refusal)
        round_stop_world(round, CT_STOP_ASKED, &asked, now_ms);
}
