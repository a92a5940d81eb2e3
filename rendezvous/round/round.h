/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds of one run, as a pure state machine: a command and the time in, actions out.
 *
 *            join deadline, CLOSE
 *        ┌──────────────────────────────> CLOSED <───────────────────┐
 *        │                                  ▲ all succeeded          │ budget used up, CLOSE
 *     FORMING ──max, last call, all back──> RUNNING ──failure,─────> STOPPING
 *        ▲                                            loss, leaver,     │
 *        └───────── all have stopped ──────────────── newcomer ─────────┘
 *
 * The first round starts when max nodes have joined, or last_call_ms after the min-th did. Later
 * ones start when every survivor of the last world has joined again (and min are there):
 * whoever waits as a newcomer or spare by then fills the places up to max. There is no last
 * call, so that a lost node costs its lease and nothing more.
 *
 * Silence of lost_after_ms is a lost node, unless its host still acknowledges what we send:
 * then it is paused, and gets pause_ms (round_pause.c; message.h has the rules of both sides).
 *
 * The limits may be changed at any time (round_base.c); with a node_unit worlds have a multiple
 * of so many nodes.
 *
 * A node whose connection broke may still have workers: the next world waits until its lease
 * is over and the time to kill them, by when its agent, cut off, has ended them. So no two worlds
 * live at once (ctrun-architecture(7) has the proof).
 *
 * A broken connection is not yet a lost node: a member of the world keeps its place for a fifth of
 * its lease and may resume on another connection (kept in round_resume.c), so that the end of a
 * connection or of this server costs nothing. A round that was restored from a journal gives all
 * of them a whole lease, and starts no world before that is over.
 *
 * A node whose hardware was the root cause so often, by words of its own, is excluded when enough others are left
 * (round_exclude.c), and no agent of that host joins again.
 *
 * A node that fails first in two rounds running makes room for a spare, if there is one; not the
 * node that serves, with which the run would end while workers elsewhere live.
 *
 * Of failures that were told before it was decided what follows, the root cause is the one that
 * happened first, if that is certain (failures.h), else the one that was told first.
 *
 * A failure costs one restart of the run's budget, whichever node it is on; a lost, leaving or
 * new node costs none, nor does a round that was asked for (round_restart.c). Whatever fails
 * after a STOP went out is a consequence of it and costs nothing either. A failure that comes
 * again right after the start ends the run at once, and so does a program that is not there.
 *
 * When a node dies, workers elsewhere may fail before its lease is over. So a failure stops the
 * world at once, but what follows stays undecided until every other member has answered that
 * STOP: then the failure was genuine. A member that is lost without having answered is the root
 * cause, and the failure its consequence. Live members answer within a round trip; a second STOP
 * tells them the decision.
 *
 * With --survive a lost rank is sent as a LOSS, not as a failure, and the others may continue in the same
 * generation (round_running.c); an epoch counts the decisions on which ranks do. When a node is lost, the ranks of
 * the other nodes may continue, where at least min nodes are left; with --survive-replace another node meanwhile
 * takes its place (round_newcomer.c).
 *
 * With fewer than min nodes the run waits for a replacement until the join
 * deadline. A run without members is forgotten, once no worker of it can be alive.
 *
 * No socket, clock, random number or log inside: `now_ms` is the server's monotonic clock, and
 * a command is an id and a message, so that it can be written down and played again. One
 * command costs O(1), those that reach every member O(N) (START: O(N log N)). */
#pragma once

#include "rendezvous/round/crash_loop.h"
#include "rendezvous/report/contacts.h"
#include "rendezvous/round/failures.h"
#include "rendezvous/round/member.h"
#include "rendezvous/report/hang_views.h"
#include "rendezvous/report/host_list.h"
#include "rendezvous/round/networks.h"
#include "rendezvous/report/poison.h"
#include "worker_sdk/base/lease.h"

enum {
    ROUND_FAULTS_MAX = 64 /* hosts with hardware faults that are remembered */
};

enum round_state {
    ROUND_FORMING,
    ROUND_RUNNING,
    ROUND_STOPPING,
    ROUND_CLOSED,
};

struct round_settings {
    uint32_t min_nodes;
    uint32_t max_nodes;
    uint32_t max_restarts;
    const char *const
        *expected; /* kept: names of hosts that should come; may be NULL */
    size_t expected_count;
    uint64_t join_timeout_ms;
    uint64_t last_call_ms;
    uint64_t lost_after_ms;
    uint64_t exclude_after; /* hardware faults of a node; 0: never */
    uint32_t node_unit;     /* worlds have a multiple of so many nodes; 0: as 1 */
    uint64_t
        pause_ms; /* since a paused member was last heard of; below lost_after_ms: none */
    uint64_t instance;       /* random, of this founding of the run */
    uint64_t found_after_ms; /* the first world is full, or starts after this */
    bool
        is_kept; /* without members, too, until its verdict: other servers know of it */
    uint16_t
        endpoint_port; /* static backend: START names it instead of a store_port; else 0 */
};

enum round_command_kind {
    ROUND_ADD,     /* a HELLO was welcomed: `link` */
    ROUND_MESSAGE, /* `message` from member `id` */
    ROUND_GONE,    /* the connection of `id` ended: `reason` */
    ROUND_TICK,    /* round_next_ms() has come */
    ROUND_RESUME,  /* member `id` is back: `link`, and `message` says as what */
    ROUND_DIRECT,  /* the kernel of `id` talks to ours: from now on it may be paused */
    ROUND_PAUSED, /* answer to round_find_unsure(): its host has acknowledged all we sent */
    ROUND_SILENT, /* ... it has not */
};

struct round_command {
    enum round_command_kind kind;
    uint64_t id;
    const struct member_link *link; /* borrowed, like all pointers here */
    const struct ct_message
        *message; /* JOIN HEARTBEAT FAILURE STOPPING STOPPED SUCCEEDED LEAVE CLOSE */
    uint64_t waited_ms; /* MESSAGE: since our kernel got it */
    uint64_t rtt_ms;    /* ... a round trip to its sender takes no longer */
    const char *reason;
    bool is_owed; /* GONE: not all that was said to it had been sent */
};

enum round_action_kind {
    ROUND_SEND_START,        /* the member's `start` */
    ROUND_SEND_WAITING,      /* round->waiting */
    ROUND_SEND_STOP,         /* round->stop */
    ROUND_SEND_VERDICT,      /* round->verdict */
    ROUND_SEND_REFUSE,       /* round->refuse; then close the connection */
    ROUND_SEND_RESIZE,       /* round->resize */
    ROUND_SEND_DRAIN,        /* round->drain */
    ROUND_SEND_DRAINED,      /* round->drained, to who asked */
    ROUND_SEND_RESTART,      /* round->restart, to who asked */
    ROUND_SEND_OFFER,        /* round->offer */
    ROUND_SEND_RELOAD,       /* round->reload */
    ROUND_SEND_RELOADED,     /* round->reloaded, to who asked */
    ROUND_SEND_REACHABILITY, /* round->reachability: all have proven theirs */
    ROUND_SEND_LOSS,         /* round->loss */
    ROUND_SEND_MEMBERS,      /* addresses of the members */
    ROUND_SEND_WORLD,        /* round->world */
    ROUND_SEND_GROW,         /* round->grow */
    ROUND_SEND_PEER,         /* something that its host has to acknowledge */
    ROUND_DROP,              /* close the connection: it is a member no more */
    ROUND_CHANGED,           /* `from` became `to`; for logs and events */
    ROUND_SEND_RESUMED,      /* round->resumed */
    ROUND_REMOVED,           /* `id` is a member no more; for the journal */
    ROUND_FORGET, /* no member is left: destroy the round. Always the last action */
};

struct round_action {
    enum round_action_kind kind;
    uint64_t id; /* of the member */
    void *peer;  /* its link's; valid even when it is a member no more */
    enum round_state from, to;
    uint32_t place;  /* WAITING: of a spare, from 1; else 0 */
    const char *why; /* static text */
};

struct round {
    /* Read only for others. */
    struct round_settings settings;
    enum round_state state;
    uint64_t generation; /* of the current or last world; 0: none yet */
    uint32_t restart_count;
    uint32_t world_count; /* members that got the last START, and are not lost */
    /* Nodes that took a lost one's place in this world; those that were lost again, too. */
    uint32_t newcomers;
    uint64_t lost_count; /* members lost that a world was owed, since birth */
    bool is_undecided;   /* STOPPING, and asked members have not answered yet */
    struct member_table members;

    /* What the last step wants done; valid until the next one. */
    struct round_action *actions;
    size_t action_count;
    struct ct_waiting waiting;
    struct ct_stop stop;
    struct ct_verdict verdict;
    struct ct_refuse refuse;
    struct ct_resize resize;
    struct ct_drain drain, drained;
    struct ct_restart restart;
    struct ct_reload reload; /* the last one that all have agreed on; number 0: none */
    struct ct_reload offer;  /* all are being asked; number 0: none */
    struct ct_reload reloaded;
    struct ct_reachability reachability;
    struct ct_loss loss;   /* the last one; losses 0: none in this generation */
    struct ct_world world; /* who goes on in it; epoch 0: all that were started */
    struct ct_grow grow;   /* the last one; generation 0: none in this one */
    struct ct_resumed resumed;
    struct ct_list news; /* struct member: changed since the journal took it */

    /* Inside. */
    bool
        is_carried_on; /* a rank of the world before is in `world`; false when restored */
    uint8_t lost[CT_WORLD_BYTES];  /* ranks of this generation; a bit each */
    uint8_t still[CT_WORLD_BYTES]; /* ... of members that wait for the next `world` */
    size_t action_capacity;
    struct member **scratch; /* as many as members, and more */
    size_t scratch_capacity;
    size_t counts[MEMBER_LEFT + 1]; /* members by state */
    size_t missing_survivors;       /* survivors that are CONNECTED: expected to join */
    size_t asked_count;             /* members that is_asked */
    bool is_finishing;              /* ranks of a member have succeeded: no newcomers */
    bool has_fingerprint;
    uint64_t fingerprint; /* of the first JOIN */
    uint8_t outcome;      /* enum ct_outcome that follows STOPPING; 0: the next round */
    uint8_t exit_code;
    struct failures failures;     /* since the last START */
    struct hang_views hang_views; /* ... of members that have stopped */
    bool is_end; /* the command that is being obeyed is the last word of its world */
    uint64_t waited_ms, rtt_ms; /* of the command that is being obeyed */
    struct crash_loop crash_loop;
    struct poison poison;
    struct round_fault {
        char host[CT_HOST_MAX];
        uint32_t count; /* root causes that told of broken hardware; 0: free */
        bool is_out;    /* no agent of it may join again */
    } faults[ROUND_FAULTS_MAX];
    uint8_t broken_fate;      /* enum ct_culprit_fate, of the last one; 0: none is */
    uint64_t culprit_id;      /* the member of the last root cause */
    bool culprit_is_kept;     /* it would have made room, but it serves */
    struct networks networks; /* that do not reach all nodes */
    struct host_list missing;
    uint64_t offered_by; /* the member that asked for `offer` */
    uint64_t offer_deadline_ms;
    struct contacts contacts; /* of the missing ones, and of those that were refused */
    struct ct_lease_queue leases; /* of members that cannot be told from paused */
    struct ct_lease_queue direct_leases; /* of the others: a fifth shorter */
    struct ct_lease_queue probes; /* of those that were sent a PEER: that fifth */
    struct ct_list unsure;        /* of those whose fifth is over */
    struct ct_lease_queue away;   /* members whose connection broke */
    uint64_t floor; /* an agent knows of this generation: the next one is above */
    uint64_t started_ms;
    uint64_t stopping_ms; /* since when, or since this server was restarted */
    /* When the server's patience ends: for members to join, or to stop. */
    uint64_t join_deadline_ms;
    /* When the last call is over; UINT64_MAX: it has not begun. */
    uint64_t last_call_ms;
    /* No world before: workers of a lost node may live until then. 0: nobody's. */
    uint64_t fence_ms;
    /* ... and until then those of another founding of the run. */
    uint64_t held_ms;
    /* ... and no `world` before: ranks of a node that is lost may live until then. 0: nobody's. */
    uint64_t ranks_fence_ms;
    /* Until then all that may go on without a lost node ask who does. 0: none is lost, or it is decided. */
    uint64_t survive_due_ms;
    /* Until then a newcomer that was announced waits for its place. 0: none was lately. */
    uint64_t newcomer_due_ms;
    struct ct_failure lost_node; /* the last such */
    bool sends_loss;             /* ... all are told of it at the end of this step */
    /* When all are told WAITING; UINT64_MAX: nothing new to tell. */
    uint64_t waiting_due_ms;
    uint64_t waiting_sent_ms;
};

/* 0, -EINVAL (settings that cannot be), -ENOMEM. */
int round_create(struct round **out, const struct round_settings *settings);
void round_destroy(struct round *round);
/* True when all members are gone, and it waits for their leases to end, or for them to return. */
bool round_is_deserted(const struct round *round);
/* It need not wait for its workers any more: who gives it up sees to it that the next run of this id does. */
void round_give_up(struct round *round);
/* A deserted run goes on as a new one, of the same instance: it starts no world before the other's
 * end, and has no more restarts left. */
void round_succeed(struct round *round, const struct round *deserted);
/* Workers of members that have not said that theirs are gone, and of nodes that were lost, are dead then,
 * whatever they hear; not counted is the node that serves. 0: none lives. */
uint64_t round_last_worker_ms(const struct round *round);
/* No world before leases end that were given until then, and the workers are killed: some may live
 * that nobody here knows. */
void round_hold(struct round *round, uint64_t given_ms);
/* No first world before. */
void round_wait(struct round *round, uint64_t until_ms);
/* By our clock: so long after a lease of lost_after_ms was given the last of its workers is dead. */
uint64_t round_outlive_ms(uint64_t lost_after_ms);
/* Somebody knows of a world of this run: the next one is above. */
void round_raise_floor(struct round *round, uint64_t generation);
/* 0, or -ENOMEM (only ROUND_ADD allocates; the member was not added), or -ENOENT (only
 * ROUND_RESUME: there is no such membership any more). Unknown ids and messages of another
 * generation do nothing. */
int round_step(struct round *round, const struct round_command *command,
               uint64_t now_ms);
/* For a server that begins anew with what was journalled: members are there without connections. No
 * heartbeat that was sent after served_ms has been acknowledged, so no world begins before the workers
 * that such a one keeps alive are dead. Whoever comes back within most of a lease from now_ms is not
 * lost: a world without it costs more than the wait. 0, -ENOMEM, or -EBADMSG: it cannot have been so. */
int round_restore(struct round *round, uint64_t served_ms, uint64_t now_ms);
/* A member of which the kernel has to say whether its host acknowledges: the answer is a
 * ROUND_PAUSED (or when bytes of it have not been read yet) or ROUND_SILENT. NULL: none. To be
 * asked after every step. */
const struct member *round_find_unsure(const struct round *round);
/* When it wants a ROUND_TICK; UINT64_MAX: never. */
uint64_t round_next_ms(const struct round *round);
/* A node of that name was turned away before it was a member. For people. */
void round_note_refused(struct round *round, const char *host, int code,
                        uint64_t now_ms);
const char *round_state_name(enum round_state state);
