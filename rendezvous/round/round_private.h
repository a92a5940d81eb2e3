/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of round.h's state machine share, and nobody else sees:
 *
 * Each needs only those below it:
 *
 *     round.c           life, coming, time, a step, invariants
 *     round_message.c   the messages of members
 *     round_newcomer.c  a node in the place of a lost one, while the others continue
 *     round_resume.c    silent members, broken connections, members that come back, restart of the server
 *     round_asked.c     what people ask for: another size, that nodes leave, a new round
 *     round_reload.c    another program for the next rounds, that all nodes can run
 *     round_running.c   a world at work: ways between its nodes; who goes on when a rank is lost
 *     round_stopping.c  what failures mean
 *     round_leave.c     members that are lost, refused, excluded; the end of a world
 *     round_forming.c   waiting for members; the start of a world
 *     round_verdict.c   what is sent at the end of a world, and of the run
 *     round_ranks.c     whose ranks do what; a node that is lost while the others go on
 *     round_absent.c    who is not here, and why
 *     round_exclude.c   a node that fails again and again makes room for a spare
 *     round_lease.c     who has been heard of; until when the lost may live
 *     round_base.c      actions, states, counts; how large worlds are */
#pragma once

#include "rendezvous/round/round.h"

/* A survivor of the last world that has not joined again: the next one waits for it. */
static inline bool round_is_missing_survivor(const struct member *member)
{
    return member->is_survivor && member->state == MEMBER_CONNECTED;
}

/* round_base.c */

/* Adds an action to those of this step; there is always room. */
struct round_action *round_push(struct round *round, enum round_action_kind kind);
void round_push_to(struct round *round, enum round_action_kind kind,
                   const struct member *member);
/* The one place where `state` changes; `why` is static text. */
void round_change_state(struct round *round, enum round_state to, const char *why);
void round_change_member(struct round *round, struct member *member,
                         enum member_state to);
void round_set_survivor(struct round *round, struct member *member, bool is_survivor);
void round_set_asked(struct round *round, struct member *member, bool is_asked);
void round_forget_fingerprint(struct round *round);
/* What is about a whole node, none of its workers; with CT_CAUSE_NONE nothing failed: who it was,
 * and why, for people. */
struct ct_failure round_name_node(const struct round *round,
                                  const struct member *member, enum ct_cause cause,
                                  const char *why);
/* Room for the actions of one member more. 0, -ENOMEM. */
int round_reserve(struct round *round);
/* The journal has to hear of this member. */
void round_note(struct round *round, struct member *member);
/* No world before then: workers may be alive until then. */
void round_raise_fence(struct round *round, uint64_t fence_ms);
/* Something that people wait for changed: all are told WAITING, now or soon. */
void round_announce(struct round *round, uint64_t now_ms);

/* How many of `ready` nodes a world may have now; 0: none may start. */
size_t round_world_size(const struct round *round, size_t ready);
/* A running world may grow, or must shrink. */
bool round_has_wrong_size(const struct round *round);

/* round_leave.c */

/* A member is gone without a word; it is freed. */
void round_lose(struct round *round, struct member *member, const char *reason,
                uint64_t now_ms);
/* Its lease is over: the connection is dropped and the member lost. */
void round_expire(struct round *round, struct member *member, uint64_t now_ms);
/* Refuses a member, which is freed. */
void round_refuse(struct round *round, struct member *member, int code,
                  const char *text, uint64_t now_ms);
/* The excluded one, if it offers itself again. */
void round_refuse_excluded(struct round *round, uint64_t now_ms);
/* STOP to all; cause NULL: the membership changes. */
void round_stop_world(struct round *round, enum ct_stop_reason reason,
                      const struct ct_failure *cause, uint64_t now_ms);
/* The next state, once no worker of the world that stops can be alive any more. */
void round_finish_stopping(struct round *round, uint64_t now_ms);

/* round_resume.c */

void round_on_paused(struct round *round, struct member *member, uint64_t now_ms);
void round_expire_leases(struct round *round, uint64_t now_ms);
/* Its connection broke. It is freed, unless it may come back. */
void round_part(struct round *round, struct member *member,
                const struct round_command *command, uint64_t now_ms);
/* Those that did not come back. */
void round_expire_away(struct round *round, uint64_t now_ms);
int round_resume(struct round *round, const struct round_command *command,
                 uint64_t now_ms);

/* round_lease.c */

static inline struct member *round_member_of(struct ct_lease *lease)
{
    return ct_list_entry(lease, struct member, lease);
}
void round_init_leases(struct round *round);
/* It has been heard of. */
void round_renew(struct round *round, struct member *member, uint64_t now_ms);
void round_on_direct(struct round *round, struct member *member, uint64_t now_ms);
/* True while this step still has to find out who is lost: no world begins with the lost. */
bool round_is_in_doubt(const struct round *round, uint64_t now_ms);
/* When the next lease or its probe is over; UINT64_MAX: there is none. */
uint64_t round_next_lease_ms(const struct round *round);
/* Until when a member that is lost now may have living workers. */
uint64_t round_fence_of(const struct round *round, const struct member *member);

/* round_ranks.c */

/* All ways between the nodes are. */
bool round_is_proven(const struct round *round);
bool round_has_rank(const uint8_t ranks[CT_WORLD_BYTES], uint32_t rank);
bool round_owns_rank(const struct member *member, uint32_t rank);
/* None of its ranks is in the world of today, in which others go on: nobody has met them, or all have done without. */
bool round_is_outside(const struct round *round, const struct member *member);
/* Nodes that run and are not outside: what they do is not done. */
size_t round_count_inside(const struct round *round);
/* Its ranks do not wait for the next WORLD any more, or have got it. */
void round_forget_still(struct round *round, struct member *member);
/* `newcomer` waits, and could have a place as that of `other`, of which all of this world have the like. */
bool round_could_replace(const struct round *round, const struct member *newcomer,
                         const struct member *other);
/* The others may go on without this one, which is being lost. */
bool round_may_survive(const struct round *round, const struct member *member);
/* They are told at the end of this step. */
void round_survive(struct round *round, struct member *member,
                   const struct ct_failure *loss, uint64_t now_ms);
/* To all, or to one; NULL: all. It says whether the worker store is lost, which its sender need not know. */
void round_send_loss(struct round *round, const struct member *to);
/* No node keeps it, and agents do: the next `world` says which one does from then on. */
bool round_is_store_lost(const struct round *round);
/* The node that had the worker store may be lost: the next `world` says which one has it. */
void round_move_store(struct round *round);
void round_restore_loss(struct round *round, uint64_t now_ms);

/* round_newcomer.c */

/* There is a lost node's place that `newcomer` may have, now or soon. */
bool round_has_place(const struct round *round, const struct member *newcomer);
/* Gives a lost node's place to a member that waits, as soon as it may have it. */
void round_take_newcomer(struct round *round, uint64_t now_ms);

/* round_message.c */

/* The member may be gone afterwards. */
void round_on_message(struct round *round, struct member *member,
                      const struct ct_message *message, uint64_t now_ms);
void round_close_if_succeeded(struct round *round, uint64_t now_ms);

/* round_exclude.c */

/* Notes whose failure was the root cause. True when that node is to make room for a spare. */
bool round_exclude(struct round *round, const struct ct_failure *failure);
/* Notes that it tells of broken hardware. True when that node is to go; what becomes of it is told by
 * round_fill_excluded(). */
bool round_exclude_broken(struct round *round, const struct ct_failure *failure);
extern const char round_broken_text[];
/* No agent of this host may join. */
bool round_is_broken_host(const struct round *round, const char *host);
/* NULL: none is. */
struct member *round_find_excluded(const struct round *round);
/* Adds it to what everybody is told. */
void round_fill_excluded(const struct round *round, struct ct_stop *stop);

/* round_forming.c */

void round_send_waiting_if_due(struct round *round, uint64_t now_ms);
void round_send_spare(struct round *round, const struct member *member);
void round_start_if_complete(struct round *round, uint64_t now_ms);
void round_expire_forming(struct round *round, uint64_t now_ms);

/* round_asked.c */

void round_on_resize(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms);
void round_on_drain(struct round *round, struct member *member,
                    const struct ct_message *message, uint64_t now_ms);
void round_on_restart(struct round *round, struct member *member,
                      const struct ct_message *message, uint64_t now_ms);

/* round_reload.c */

void round_on_reload(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms);
/* A member that joins gets what it may not know. */
void round_send_reload(struct round *round, struct member *member);
/* It leaves, or cannot answer: nothing is agreed on without it. */
void round_drop_offer(struct round *round, const struct member *member,
                      const char *why);
/* Who was asked has been silent for too long. */
void round_expire_offer(struct round *round, uint64_t now_ms);

/* round_running.c */

void round_on_reachability(struct round *round, struct member *member,
                           const struct ct_message *message, uint64_t now_ms);
void round_on_loss(struct round *round, struct member *member,
                   const struct ct_message *message, uint64_t now_ms);
void round_on_grow(struct round *round, struct member *member,
                   const struct ct_message *message, uint64_t now_ms);
void round_on_still(struct round *round, struct member *member,
                    const struct ct_message *message, uint64_t now_ms);
/* Its ranks have all ended: nobody waits for them. */
void round_leave_world(struct round *round, struct member *member, uint64_t now_ms);
/* What a lost node has to do with this moment. */
void round_settle_loss(struct round *round, uint64_t now_ms);
/* What a member that runs and comes back may have missed; after its START. */
void round_send_world(struct round *round, const struct member *member);

/* round_absent.c */

/* This host came and is away: why. Told to those who wait. */
void round_note_absent(struct round *round, const char *host, const char *why,
                       bool is_refused, uint64_t now_ms);
void round_format_absent(const struct round *round, char *dst, size_t size);
/* text and facts of E_JOIN_TIMEOUT. */
void round_fill_timeout(struct round *round, struct ct_failure *failure,
                        uint64_t now_ms);

/* round_verdict.c */

/* How the run ends once its world has stopped. */
void round_decide(struct round *round, enum ct_outcome outcome, uint8_t exit_code);
void round_close(struct round *round, const char *why);
/* What the next STOP says; cause NULL: the membership changes. */
void round_fill_stop(struct round *round, enum ct_stop_reason reason,
                     const struct ct_failure *cause);
/* The second STOP: to all that got the first one and are still here. */
void round_send_decision(struct round *round, enum ct_stop_reason reason,
                         const struct ct_failure *cause);
/* A member is lost that never answered the undecided STOP: that is why others failed. */
void round_blame_loss(struct round *round, const struct ct_failure *loss);

/* round_stopping.c */

/* A member's workers have grace_ms from the beginning of the stop. */
void round_wait_for_grace(struct round *round, uint64_t grace_ms);
/* --survive: the others do not go on without the lost node, which ends the world. */
void round_give_up_surviving(struct round *round, uint64_t now_ms);
/* `reporter` is known to live. */
void round_fail(struct round *round, struct member *reporter,
                const struct ct_failure *failure, uint64_t now_ms);
/* It has our STOP: whatever was lost by then, this node was not. */
void round_on_answer(struct round *round, struct member *member);
/* Takes what the message that is being obeyed tells into the failures of this world. */
void round_add_failure(struct round *round, const struct ct_failure *failure,
                       uint64_t now_ms);
void round_give_up_stopping(struct round *round, uint64_t now_ms);
