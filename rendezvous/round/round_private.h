/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of round.h's state machine, and private to them.
 *
 * Each file calls only those below it:
 *
 *     round.c           create and destroy, new members, time, a step, invariants
 *     round_message.c   the messages of members
 *     round_newcomer.c  a node in the place of a lost one, while the others continue
 *     round_resume.c    silent members, broken connections, members that come back, restart of the server
 *     round_asked.c     what users ask for: another size, nodes that leave, a new round
 *     round_reload.c    another program for the next rounds
 *     round_running.c   a running world: reachability of its nodes; which ranks continue when a rank is lost
 *     round_stopping.c  what failures mean
 *     round_leave.c     members that are lost, refused, excluded; the end of a world
 *     round_forming.c   waiting for members; the start of a world
 *     round_verdict.c   what is sent at the end of a world, and of the run
 *     round_ranks.c     ranks and their nodes; a node that is lost while the others continue
 *     round_absent.c    which nodes are absent, and why
 *     round_exclude.c   a node that fails again and again makes room for a spare
 *     round_lease.c     leases; until when workers of a lost node may live
 *     round_base.c      actions, states, counts; how large worlds are */
#pragma once

#include "rendezvous/round/round.h"

/* A survivor of the last world that has not joined again: the next world waits for it. */
static inline bool round_is_missing_survivor(const struct member *member)
{
    return member->is_survivor && member->state == MEMBER_CONNECTED;
}

/* round_base.c */

/* The common part of the member's START. */
static inline const struct ct_start *round_start_of(const struct round *round,
                                                    const struct member *member)
{
    return member->start.is_new ? &round->new_start : &round->start;
}
/* Writes where the worker store is: on this member's node, by name and all addresses. */
void round_name_master(struct ct_start *start, const struct member *member);

/* Adds an action to those of this step; there is always room. */
struct round_action *round_push(struct round *round, enum round_action_kind kind);
void round_push_to(struct round *round, enum round_action_kind kind,
                   const struct member *member);
/* Adds this action for each member in that state. */
void round_push_to_all(struct round *round, enum round_action_kind kind,
                       enum member_state state);
/* The one place where `state` changes; `why` is static text. */
void round_change_state(struct round *round, enum round_state to, const char *why);
void round_change_member(struct round *round, struct member *member,
                         enum member_state to);
void round_set_survivor(struct round *round, struct member *member, bool is_survivor);
void round_set_asked(struct round *round, struct member *member, bool is_asked);
void round_forget_fingerprint(struct round *round);
/* A failure of a whole node, not of one of its workers. With CT_CAUSE_NONE nothing failed: it only
 * names the node and the reason for messages. */
struct ct_failure round_name_node(const struct round *round,
                                  const struct member *member, enum ct_cause cause,
                                  const char *why);
/* Reserves room for the actions of one more member. 0, -ENOMEM. */
int round_reserve(struct round *round);
/* Marks this member as changed for the journal. */
void round_note(struct round *round, struct member *member);
/* No world starts before this time: workers may be alive until then. */
void round_raise_fence(struct round *round, uint64_t fence_ms);
/* The list of absent nodes changed: WAITING is sent to all, now or soon. */
void round_announce(struct round *round, uint64_t now_ms);

/* How many of `ready` nodes a world may have now; 0: no world may start. */
size_t round_world_size(const struct round *round, size_t ready);
/* True if a running world may grow, or must shrink. */
bool round_has_wrong_size(const struct round *round);

/* round_leave.c */

/* A member is gone without LEAVE; it is freed. */
void round_lose(struct round *round, struct member *member, const char *reason,
                uint64_t now_ms);
/* The member's lease is over: the connection is closed and the member is lost. */
void round_expire(struct round *round, struct member *member, uint64_t now_ms);
/* Refuses a member, which is freed. */
void round_refuse(struct round *round, struct member *member, int code,
                  const char *text, uint64_t now_ms);
/* Refuses an excluded member if it has joined again; NULL is fine. */
void round_refuse_excluded(struct round *round, struct member *member, uint64_t now_ms);
/* STOP to all; cause NULL: the membership changes. */
void round_stop_world(struct round *round, enum ct_stop_reason reason,
                      const struct ct_failure *cause, uint64_t now_ms);
/* The same where nodes wait to be taken in: STOP has their names. */
void round_stop_to_grow(struct round *round, uint64_t now_ms);
/* The next state, once no worker of the world that stops can be alive any more. */
void round_finish_stopping(struct round *round, uint64_t now_ms);

/* round_resume.c */

void round_on_paused(struct round *round, struct member *member, uint64_t now_ms);
void round_expire_leases(struct round *round, uint64_t now_ms);
/* The member's connection broke. It is freed, unless it may resume. */
void round_part(struct round *round, struct member *member,
                const struct round_command *command, uint64_t now_ms);
/* Members that did not resume in time are lost. */
void round_expire_away(struct round *round, uint64_t now_ms);
int round_resume(struct round *round, const struct round_command *command,
                 uint64_t now_ms);

/* round_lease.c */

static inline struct member *round_member_of(struct ct_lease *lease)
{
    return ct_list_entry(lease, struct member, lease);
}
void round_init_leases(struct round *round);
/* Renews the lease of a member that was heard from. */
void round_renew(struct round *round, struct member *member, uint64_t now_ms);
void round_on_direct(struct round *round, struct member *member, uint64_t now_ms);
/* True while this step has not yet found out which members are lost: no world may start with a lost
 * member. */
bool round_is_in_doubt(const struct round *round, uint64_t now_ms);
/* When the next lease or its probe is over; UINT64_MAX: none. */
uint64_t round_next_lease_ms(const struct round *round);
/* Until when workers of a member that is lost now may be alive. */
uint64_t round_fence_of(const struct round *round, const struct member *member);

/* round_ranks.c */

/* True if all nodes have proven that they reach each other. */
bool round_is_proven(const struct round *round);
bool round_has_rank(const uint8_t ranks[CT_WORLD_BYTES], uint32_t rank);
bool round_owns_rank(const struct member *member, uint32_t rank);
/* True if the others continue in a `world` that has no rank of this member: its ranks have not been
 * taken in yet, or were dropped. */
bool round_is_outside(const struct round *round, const struct member *member);
/* The number of nodes that still run and are not outside. */
size_t round_count_inside(const struct round *round);
/* The member's ranks do not wait for the next WORLD any more, or have got it. */
void round_forget_still(struct round *round, struct member *member);
/* True if `newcomer` waits, and could take a place like that of `other`, a node of this world. */
bool round_could_replace(const struct round *round, const struct member *newcomer,
                         const struct member *other);
/* True if the others may continue without this member, which is being lost. */
bool round_may_survive(const struct round *round, const struct member *member);
/* The others continue without this member; they are told at the end of this step. */
void round_survive(struct round *round, struct member *member,
                   const struct ct_failure *loss, uint64_t now_ms);
/* Sends LOSS to one member; NULL: to all. It says whether the worker store is lost. */
void round_send_loss(struct round *round, const struct member *to);
/* True if the node of the worker store is lost: the next `world` names another one. False with the
 * static backend, where the endpoint is the store. */
bool round_is_store_lost(const struct round *round);
/* If the node of the worker store is lost, chooses another one for the next `world`. */
void round_move_store(struct round *round);
void round_restore_loss(struct round *round, uint64_t now_ms);

/* round_newcomer.c */

/* True if a lost node's place is free for `newcomer`, now or soon. */
bool round_has_place(const struct round *round, const struct member *newcomer);
/* Gives a lost node's place to a waiting member as soon as this is safe. */
void round_take_newcomer(struct round *round, uint64_t now_ms);

/* round_message.c */

/* The member may be gone afterwards. */
void round_on_message(struct round *round, struct member *member,
                      const struct ct_message *message, uint64_t now_ms);
void round_close_if_succeeded(struct round *round, uint64_t now_ms);

/* round_exclude.c */

/* Notes which node had the root cause. True if this node must make room for a spare. */
bool round_exclude(struct round *round, const struct ct_failure *failure);
/* Counts a failure that reports broken hardware. True if this node is excluded;
 * round_fill_excluded() tells what happens to the node. */
bool round_exclude_broken(struct round *round, const struct ct_failure *failure);
extern const char round_broken_text[];
/* True if no agent of this host may join. */
bool round_is_broken_host(const struct round *round, const char *host);
/* NULL: no member is excluded. */
struct member *round_find_excluded(const struct round *round);
/* Adds the excluded node to the STOP that all members get. */
void round_fill_excluded(const struct round *round, struct ct_stop *stop);

/* round_forming.c */

void round_send_waiting_if_due(struct round *round, uint64_t now_ms);
/* That the member is a spare; while a node of the world is away it is owed. */
void round_send_spare(struct round *round, const struct member *member);
void round_send_owed_spares(struct round *round);
void round_start_if_complete(struct round *round, uint64_t now_ms);
void round_expire_forming(struct round *round, uint64_t now_ms);

/* round_asked.c */

void round_on_resize(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms);
/* Sends RESIZE to a member that may not know the present limits: it has just come or come back. */
void round_send_limits(struct round *round, struct member *member);
void round_on_drain(struct round *round, struct member *member,
                    const struct ct_message *message, uint64_t now_ms);
void round_on_restart(struct round *round, struct member *member,
                      const struct ct_message *message, uint64_t now_ms);

/* round_reload.c */

void round_on_reload(struct round *round, struct member *member,
                     const struct ct_message *message, uint64_t now_ms);
/* Sends the present program to a member that may not know it. */
void round_send_reload(struct round *round, struct member *member);
/* This member leaves or cannot answer: an offer that needs it ends. */
void round_drop_offer(struct round *round, const struct member *member,
                      const char *why);
/* Ends an offer that a member has not answered in time. */
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
/* The member's ranks have all ended: the others do not wait for its STILL. */
void round_leave_world(struct round *round, struct member *member, uint64_t now_ms);
/* What is due now after the loss of a node. */
void round_settle_loss(struct round *round, uint64_t now_ms);
/* Sends what a running member that resumed may have missed; after its START. */
void round_send_world(struct round *round, const struct member *member);

/* round_absent.c */

/* Notes why a host that had connected is absent; WAITING tells it. at_ms: when something was last received from it. */
void round_note_absent(struct round *round, const char *host, const char *why,
                       bool is_explained, uint64_t at_ms, uint64_t now_ms);
void round_format_absent(const struct round *round, char *dst, size_t size);
/* text and facts of E_JOIN_TIMEOUT. */
void round_fill_timeout(struct round *round, struct ct_failure *failure,
                        uint64_t now_ms);

/* round_verdict.c */

/* Sets how the run ends once its world has stopped. */
void round_decide(struct round *round, enum ct_outcome outcome, uint8_t exit_code);
void round_close(struct round *round, const char *why);
/* Fills the next STOP; cause NULL: the membership changes. */
void round_fill_stop(struct round *round, enum ct_stop_reason reason,
                     const struct ct_failure *cause);
/* Sends the second STOP to all members that got the first one and are still here. */
void round_send_decision(struct round *round, enum ct_stop_reason reason,
                         const struct ct_failure *cause);
/* A member was lost before it answered the undecided STOP: this loss is the root cause. */
void round_blame_loss(struct round *round, const struct ct_failure *loss);

/* round_stopping.c */

/* Extends the deadline of the stop: a member's workers have grace_ms from its begin. */
void round_wait_for_grace(struct round *round, uint64_t grace_ms);
/* --survive: the others do not continue without the lost node; its loss ends the world. */
void round_give_up_surviving(struct round *round, uint64_t now_ms);
/* What follows from a failure that was added. `reporter` reported it, so it is alive. */
void round_fail(struct round *round, struct member *reporter,
                const struct ct_failure *failure, uint64_t now_ms);
/* The member has answered our STOP: it is not the lost node that caused the failure. */
void round_on_answer(struct round *round, struct member *member);
/* Adds a failure from the current message to those of this world. */
void round_add_failure(struct round *round, const struct ct_failure *failure,
                       uint64_t now_ms);
void round_give_up_stopping(struct round *round, uint64_t now_ms);
