/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/ha_relay.h"

static void send_plan(const struct ha_relay *relay, struct peer *peer)
{
    const struct ct_message out = {CT_MESSAGE_HA_PLAN, .ha_plan = &relay->plan};

    peer_send(peer, &out);
}

void ha_relay_on_report(const struct ha_relay *relay, struct peer *peer,
                        const struct ct_ha_report *report)
{
    const struct ha_hooks *hooks = relay->hooks;
    const bool is_first = !peer->has_reported;

    if (!hooks)
        return;
    peer->has_reported = true;
    hooks->on_report(hooks->context, peer->id, report);
    if (is_first && relay->plan.epoch != 0)
        send_plan(relay, peer);
}

void ha_relay_send_where(const struct ha_relay *relay, struct peer *peer)
{
    if (relay->plan.epoch != 0 && relay->plan.phase == CT_HA_ACTIVE)
        send_plan(relay, peer);
}

void ha_relay_drop(const struct ha_relay *relay, struct peer *peer)
{
    const struct ha_hooks *hooks = relay->hooks;

    if (hooks && peer->has_reported)
        hooks->on_gone(hooks->context, peer->id);
    peer->has_reported = false;
}

void ha_relay_send(struct ha_relay *relay, struct runs *runs,
                   const struct ct_ha_plan *plan)
{
    const bool is_active = plan->phase == CT_HA_ACTIVE;

    relay->plan = *plan;
    runs->is_elected |= is_active;
    ct_list_for_each(struct run, run, &runs->list, node) {
        struct round *round = run->round;

        round->settings.is_kept |= is_active; /* also the first server's */
        member_for_each(member, &round->members) {
            struct peer *peer = member->link.peer;

            if (peer && peer->has_reported)
                send_plan(relay, peer);
        }
    }
}
