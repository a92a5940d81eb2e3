/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/relay.h"

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

void relay_signal(struct peer *peer, const struct ct_message *message)
{
    const struct round *round = peer->run->round;
    struct ct_signal signal = *message->signal;
    const struct ct_message out = {CT_MESSAGE_SIGNAL, .signal = &signal};

    if (signal.generation != round->generation)
        return; /* of an earlier world */
    (void)ct_copy(signal.host, sizeof signal.host, peer->host); /* same size */
    member_for_each(member, &round->members) {
        if (member->link.id != peer->id && member->link.peer &&
            member_is_in_world(member))
            peer_send(member->link.peer, &out);
    }
}

/* ---- Stacks ------------------------------------------------------------------------------ */

static bool is_meant(const struct member *member, uint64_t asker, int32_t rank)
{
    const int64_t first = member->start.rank_base;

    return member->link.id != asker && member_is_in_world(member) &&
           (rank < 0 || (rank >= first && rank < first + member->join.slots));
}

static uint32_t count_meant(const struct round *round, uint64_t asker, int32_t rank)
{
    uint32_t count = 0;

    member_for_each(member, &round->members)
        count += is_meant(member, asker, rank);
    return count;
}

/* Asks also nodes that are away and lists them as asked: the asking agent reports that no answer
 * came. */
static void ask(struct peer *peer, const struct ct_stacks *message,
                struct ct_stacks *stacks)
{
    const struct round *round = peer->run->round;
    const uint32_t meant = count_meant(round, peer->id, message->rank);
    const uint32_t asked = meant < CT_STACKS_NODES_MAX ? meant : CT_STACKS_NODES_MAX;
    const uint32_t share = asked > 0 ? CT_STACKS_ALL_MAX_BYTES / asked : 0;
    const struct ct_message out = {CT_MESSAGE_STACKS, .stacks = stacks};
    uint32_t left = asked;

    *stacks = (struct ct_stacks){.what = CT_STACKS_ASKED,
                                 .ticket = message->ticket,
                                 .nodes = asked,
                                 .left_out = meant - asked};
    if (asked == 0)
        peer_send(peer, &out);
    for (size_t i = 0; i < round->members.count && left > 0; i++) {
        const struct member *member = round->members.list[i];

        if (!is_meant(member, peer->id, message->rank))
            continue;
        left--;
        stacks->what = CT_STACKS_ASKED;
        stacks->node = member->start.group_rank;
        (void)ct_copy(stacks->host, sizeof stacks->host, member->link.host);
        peer_send(peer, &out);
        stacks->what = CT_STACKS_ASK;
        stacks->asker = peer->id;
        stacks->rank = message->rank;
        stacks->most = share < CT_STACKS_NODE_MAX_BYTES ? share
                                                        : CT_STACKS_NODE_MAX_BYTES;
        if (member->link.peer)
            peer_send(member->link.peer, &out);
    }
}

/* The server fills in the node of the answer: the sender's own claim is not used. */
static void answer(const struct peer *peer, const struct ct_stacks *message,
                   struct ct_stacks *stacks)
{
    const struct round *round = peer->run->round;
    const struct member *from = member_find(&round->members, peer->id);
    const struct member *to = member_find(&round->members, message->asker);
    const struct ct_message out = {CT_MESSAGE_STACKS, .stacks = stacks};

    if (!from || !to || !to->link.peer || !member_is_in_world(from))
        return;
    *stacks = *message;
    stacks->node = from->start.group_rank;
    (void)ct_copy(stacks->host, sizeof stacks->host, from->link.host);
    peer_send(to->link.peer, &out);
}

void relay_stacks(struct peer *peer, const struct ct_message *message)
{
    struct ct_stacks *stacks = ct_zalloc(sizeof *stacks);
    const uint8_t what = message->stacks->what;

    if (!stacks)
        return; /* the asking agent waits only for a limited time */
    if (what == CT_STACKS_ASK)
        ask(peer, message->stacks, stacks);
    else if (what == CT_STACKS_TEXT || what == CT_STACKS_END)
        answer(peer, message->stacks, stacks);
    free(stacks);
}

/* ---- To group rank 0 --------------------------------------------------------------------- */

static struct peer *find_first_node(const struct round *round)
{
    member_for_each(member, &round->members) {
        if (member_is_in_world(member) && member->start.group_rank == 0)
            return member->link.peer;
    }
    return NULL;
}

/* The sender, if it is another node of this world. NULL: the message is of an earlier world, or group
 * rank 0 is not connected. */
static const struct member *find_sender(const struct peer *peer, const struct peer *to,
                                        uint64_t generation)
{
    const struct round *round = peer->run->round;
    const struct member *from = member_find(&round->members, peer->id);

    return from && to && to != peer && member_is_in_world(from) &&
                   generation == round->generation
               ? from
               : NULL;
}

void relay_calls(struct peer *peer, const struct ct_message *message)
{
    struct peer *to = find_first_node(peer->run->round);
    struct ct_calls calls = *message->calls;
    const struct member *from = find_sender(peer, to, calls.generation);

    if (!from)
        return;
    calls.node = from->start.group_rank;
    (void)ct_copy(calls.host, sizeof calls.host, from->link.host); /* same size */
    peer_send(to, &(struct ct_message){CT_MESSAGE_CALLS, .calls = &calls});
}

void relay_absent(struct peer *peer, const struct ct_message *message)
{
    struct peer *to = find_first_node(peer->run->round);
    struct ct_absent absent = *message->absent;
    const struct member *from = find_sender(peer, to, absent.generation);

    if (!from)
        return;
    absent.node = from->start.group_rank;
    (void)ct_copy(absent.host, sizeof absent.host, from->link.host); /* same size */
    peer_send(to, &(struct ct_message){CT_MESSAGE_ABSENT, .absent = &absent});
}

/* ---- Chaos ------------------------------------------------------------------------------- */

static bool has_target(const struct member *member, const struct ct_fault *fault)
{
    const int64_t first = member->start.rank_base;

    switch ((enum ct_fault_kind)fault->kind) {
    case CT_FAULT_KILL:
    case CT_FAULT_STOP:
    case CT_FAULT_SEVER:
        return fault->target >= first && fault->target < first + member->join.slots;
    case CT_FAULT_CUT:
    case CT_FAULT_SLOW:
    case CT_FAULT_QUOTA:
    case CT_FAULT_THROTTLE:
    case CT_FAULT_FULL: return fault->target == (int64_t)member->start.group_rank;
    case CT_FAULT_END: return true;
    }
    return false;
}

/* Sends the fault to its targets. If none of them can be reached, `peer` gets the answer why. */
static void inject(struct peer *peer, const struct ct_chaos *message)
{
    const struct round *round = peer->run->round;
    const char *refusal = "no node of this round has that rank";
    struct ct_chaos chaos = *message;
    const struct ct_message out = {CT_MESSAGE_CHAOS, .chaos = &chaos};
    bool is_sent = false;

    chaos.asker = peer->id;
    (void)ct_copy(chaos.host, sizeof chaos.host, peer->host); /* same size */
    member_for_each(member, &round->members) {
        if (member->link.id == peer->id || !member_is_in_world(member) ||
            !has_target(member, &message->fault))
            continue;
        if (member->link.peer)
            peer_send(member->link.peer, &out);
        else
            refusal = "its node is not connected to the rendezvous server";
        is_sent |= member->link.peer != NULL;
    }
    if (is_sent || message->fault.kind == CT_FAULT_END)
        return;
    chaos.is_answer = 1;
    (void)ct_copy(chaos.text, sizeof chaos.text, refusal);
    peer_send(peer, &out);
}

void relay_chaos(struct peer *peer, const struct ct_message *message)
{
    struct ct_chaos chaos = *message->chaos;
    const struct member *to = member_find(&peer->run->round->members, chaos.asker);

    if (!chaos.is_answer) {
        inject(peer, &chaos);
        return;
    }
    (void)ct_copy(chaos.host, sizeof chaos.host, peer->host);
    if (to && to->link.peer)
        peer_send(to->link.peer,
                  &(struct ct_message){CT_MESSAGE_CHAOS, .chaos = &chaos});
}
