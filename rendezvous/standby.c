/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/standby.h"

#include <errno.h>
#include <string.h>

#include "rendezvous/heir_list.h"
#include "rendezvous/run.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/wire/takeover.h"

int standby_begin(struct dispatch *dispatch, const struct ct_heritage *heritage,
                  struct ctrun_error *err)
{
    struct run *run;
    int rc;

    dispatch_yield(dispatch);
    dispatch->reign++;
    if (!(run = run_create(dispatch, &heritage->hello, &rc)))
        return ct_fail(err, rc, "take the run over: %s", strerror(-rc));
    if ((rc = round_inherit(run->round, heritage)) < 0) {
        run_forget(run);
        return ct_fail(err, rc, "take the run over: %s", strerror(-rc));
    }
    dispatch->is_standby = false;
    ct_info("serving in another host's place run=%s generation=%llu members=%zu",
            run->id, (unsigned long long)heritage->generation, heritage->count);
    return 0;
}

void standby_keep_allegiance(struct dispatch *dispatch, struct round *round)
{
    if (round->allegiance.count == 0)
        return;
    allegiance_end(&dispatch->allegiance);
    dispatch->allegiance = round->allegiance;
    round->allegiance = (struct allegiance){0};
}

void standby_disband(struct dispatch *dispatch)
{
    struct ct_list *it;

    dispatch->out.kind = CT_MESSAGE_ROSTER;
    memset(&dispatch->out.roster, 0, sizeof dispatch->out.roster);
    ct_list_for_each(it, &dispatch->runs) {
        const struct round *round = ct_list_entry(it, struct run, node)->round;

        for (size_t i = 0; i < round->members.count && dispatch->self_key; i++) {
            if (round->members.list[i]->link.peer)
                peer_send(round->members.list[i]->link.peer, &dispatch->out);
        }
    }
}

void standby_send_roster(struct run *run, struct peer *peer)
{
    struct ct_message *out = &run->dispatch->out;
    size_t first = 0;

    out->kind = CT_MESSAGE_ROSTER;
    while (heir_list_fill(&out->roster, run->round, first)) {
        peer_send(peer, out);
        first += out->roster.count;
    }
}

void standby_send_echo(struct peer *peer)
{
    struct dispatch *dispatch = peer->dispatch;

    if (dispatch->self_key == 0)
        return;
    dispatch->out.kind = CT_MESSAGE_ECHO;
    dispatch->out.echo = (struct ct_echo){
        .time_ms = ct_now_ms(), .server = dispatch->self_key + dispatch->reign};
    dispatch->out.echo.is_held = peer->run &&
                                 peer->run->round->state == ROUND_FORMING &&
                                 !round_may_start(peer->run->round,
                                                  dispatch->out.echo.time_ms);
    peer_send(peer, &dispatch->out);
}

static void send_ack(struct peer *peer, const struct ct_heartbeat *heartbeat)
{
    struct ct_message *out = &peer->dispatch->out;

    out->kind = CT_MESSAGE_HEARTBEAT_ACK;
    out->heartbeat = *heartbeat;
    peer->is_owed = false;
    peer_send(peer, out);
}

void standby_acknowledge(struct peer *peer, const struct ct_heartbeat *heartbeat)
{
    const struct ct_heartbeat copy = *heartbeat; /* it may be in dispatch->in */

    if (round_may_acknowledge(peer->run->round, peer->id, ct_now_ms())) {
        send_ack(peer, &copy);
    } else {
        peer->owed = copy;
        peer->is_owed = true;
    }
    standby_send_echo(peer);
}

static void pay(struct run *run)
{
    const struct round *round = run->round;

    for (size_t i = 0; i < round->members.count; i++) {
        struct peer *peer = round->members.list[i]->link.peer;

        if (peer && peer->is_owed &&
            round_may_acknowledge(round, peer->id, ct_now_ms()))
            send_ack(peer, &peer->owed);
    }
}

void standby_take_echo(struct peer *peer, const struct round_command *command)
{
    struct dispatch *dispatch = peer->dispatch;
    const struct run *run = peer->run;
    struct ct_list *it;

    run_step(peer->run, command);
    ct_list_for_each(it, &dispatch->runs) { /* the run may be gone */
        struct run *found = ct_list_entry(it, struct run, node);

        if (found == run) {
            pay(found);
            return;
        }
    }
}
