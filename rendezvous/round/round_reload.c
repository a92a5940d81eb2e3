/* SPDX-License-Identifier: Apache-2.0 */
/* Another program or other arguments, from the next round on: all present nodes are asked first,
 * and the program is taken if each node can run it and all have the same file. A node that comes
 * later gets it after its JOIN.
 *
 *     none ──ASK──> OFFER to all ──each has answered, all alike──> TAKE to all, REPLY
 *       ▲                │ one cannot, is unlike, leaves, is silent
 *       └────────────────┴──> REPLY with the reason: nothing has changed */
#include "rendezvous/round/round_limits.h"
#include "rendezvous/round/round_private.h"
#include "worker_sdk/base/str.h"

static bool takes_part(const struct member *member)
{
    return member->state != MEMBER_LEAVING && member->state != MEMBER_LEFT;
}

/* text NULL: the program was taken. */
static void reply(struct round *round, const struct member *asker, uint32_t ticket,
                  const char *text)
{
    round->reloaded = (struct ct_reload){.step = CT_RELOAD_REPLY, .ticket = ticket};
    if (text)
        (void)ct_format(round->reloaded.text, sizeof round->reloaded.text, "%s",
                        text); /* cut is fine */
    else
        round->reloaded.number = round->reload.number;
    if (asker)
        round_push_to(round, ROUND_SEND_RELOADED, asker);
}

static void end_offer(struct round *round, const char *refusal)
{
    const uint32_t ticket = round->offer.ticket;

    round->offer.number = 0;
    member_for_each(member, &round->members)
        member->owes_answer = false;
    reply(round, member_find(&round->members, round->offered_by), ticket, refusal);
}

/* NULL: all can be asked. */
static const char *why_not(const struct round *round, char *dst, size_t size)
{
    if (round->state == ROUND_CLOSED || round->outcome)
        return "the run is ending";
    if (round->offer.number > 0)
        return "another reload is in progress: try again in some seconds";
    member_for_each(member, &round->members) {
        if (member->is_away && takes_part(member)) {
            (void)ct_format(dst, size, "%s is not connected at this moment",
                            member->link.host);
            return dst;
        }
    }
    return NULL;
}

static void offer(struct round *round, struct member *asker,
                  const struct ct_reload *asked, uint64_t now_ms)
{
    char text[CT_HOST_MAX + 64];
    const char *refusal = why_not(round, text, sizeof text);

    if (refusal) {
        reply(round, asker, asked->ticket, refusal);
        return;
    }
    round->offer = *asked;
    round->offer.number = round->reload.number + 1;
    round->offer.step = CT_RELOAD_OFFER;
    round->offer.program = 0;
    round->offer.text[0] = '\0';
    (void)ct_copy(round->offer.by, sizeof round->offer.by, asker->link.host);
    round->offered_by = asker->link.id;
    round->offer_deadline_ms = now_ms + ROUND_OFFER_MS;
    member_for_each(member, &round->members) {
        member->owes_answer = takes_part(member);
        if (member->owes_answer)
            round_push_to(round, ROUND_SEND_OFFER, member);
    }
}

static void send_reload(struct round *round, struct member *member)
{
    member->sent_reload = round->reload.number;
    round_push_to(round, ROUND_SEND_RELOAD, member);
}

/* All members have answered that they can run it. */
static void take(struct round *round)
{
    round->reload = round->offer;
    round->reload.step = CT_RELOAD_TAKE;
    member_for_each(member, &round->members) {
        if (takes_part(member)) {
            member->join.program = member->join.program ? round->reload.program : 0;
            send_reload(round, member);
        }
    }
    end_offer(round, NULL);
}

static void on_answer(struct round *round, struct member *member,
                      const struct ct_reload *answer)
{
    char text[sizeof answer->text + CT_HOST_MAX + 64] = "";

    if (answer->number != round->offer.number || !member->owes_answer)
        return; /* an answer to an offer that has ended */
    if (*answer->text)
        (void)ct_format(text, sizeof text, "%s: %s", member->link.host, answer->text);
    else if (answer->program && round->offer.program &&
             answer->program != round->offer.program)
        (void)ct_format(text, sizeof text,
                        "the file of that name on %s differs from the one on the nodes "
                        "that answered before",
                        member->link.host);
    if (*text) {
        end_offer(round, text);
        return;
    }
    if (answer->program)
        round->offer.program = answer->program;
    member->owes_answer = false;
    member_for_each(it, &round->members)
        if (it->owes_answer)
            return;
    take(round);
}

/* Takes over what an agent has taken earlier: this server was restarted and does not know it
 * yet. */
static void learn(struct round *round, struct member *member,
                  const struct ct_reload *taken)
{
    if (taken->number <= round->reload.number)
        return;
    if (round->offer.number > 0)
        end_offer(round, "a node has just reported an earlier reload that this "
                         "rendezvous server did not have: try again");
    round->reload = *taken;
    round->reload.step = CT_RELOAD_TAKE;
    round->reload.text[0] = '\0';
    member->sent_reload = taken->number;
    member_for_each(it, &round->members)
        if (it != member && takes_part(it))
            send_reload(round, it);
}

void round_on_reload(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms)
{
    const struct ct_reload *reload = message->reload;

    switch (reload->step) {
    case CT_RELOAD_ASK: offer(round, member, reload, now_ms); break;
    case CT_RELOAD_ANSWER: on_answer(round, member, reload); break;
    case CT_RELOAD_TAKE: learn(round, member, reload); break;
    default: break; /* round_message.c refuses it */
    }
}

void round_send_reload(struct round *round, struct member *member)
{
    if (member->sent_reload >= round->reload.number)
        return;
    if (member->join.program != round->reload.program)
        member->join.program = 0; /* that of its command line */
    send_reload(round, member);
}

void round_drop_offer(struct round *round, const struct member *member, const char *why)
{
    char text[CT_HOST_MAX + 64];

    if (round->offer.number == 0 ||
        (!member->owes_answer && member->link.id != round->offered_by))
        return;
    (void)ct_format(text, sizeof text, "%s %s", member->link.host, why);
    end_offer(round, text);
}

void round_expire_offer(struct round *round, uint64_t now_ms)
{
    char text[CT_HOST_MAX + 64] = "";

    if (round->offer.number == 0 || now_ms < round->offer_deadline_ms)
        return;
    for (size_t i = 0; i < round->members.count && !*text; i++)
        if (round->members.list[i]->owes_answer)
            (void)ct_format(text, sizeof text, "%s did not answer within %d s",
                            round->members.list[i]->link.host, ROUND_OFFER_MS / 1000);
    end_offer(round, text);
}
