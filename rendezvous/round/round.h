/* SPDX-License-Identifier: Apache-2.0 */
/* The rounds of one run, as a pure state machine: a command and the time in, actions out.
 *
 *            join deadline
 *        ┌──────────────────────────────> CLOSED <───────────────────┐
 *        │                                  ▲ all succeeded          │ budget used up
 *     FORMING ──max, last call, all back──> RUNNING ──failure,─────> STOPPING
 *        ▲                                            loss, leaver,     │
 *        └───────── all have stopped ──────────────── newcomer ─────────┘
 *
 * The first round starts when max nodes have joined, or last_call_ms after the min-th did. Later
 * ones start when every survivor of the last world has joined again (and min are there): newcomers
 * and spares that wait by then fill the places up to max. There is no last call, so a lost node
 * costs its lease and nothing more.
 *
 * A node that is silent for lost_after_ms is lost, unless its host still acknowledges what we send:
 * then the node is paused, and gets pause_ms (round_resume.c; message.h has the rules of both
 * sides).
 *
 * The limits may be changed at any time (round_base.c); with a node_unit worlds have a multiple
 * of so many nodes.
 *
 * A node whose connection broke may still have workers: the next world waits for the end of its
 * lease plus the time to kill them; by then its agent has ended them by itself. So no two worlds
 * live at once (ctrun-architecture(7) has the proof).
 *
 * A broken connection is not yet a lost node: a member of the world keeps its place for a fifth of
 * its lease and may resume on another connection (kept in round_resume.c), so that the end of a
 * connection or of this server costs nothing. A round that was restored from a journal gives all
 * members a whole lease, and starts no world before the lease is over.
 *
 * A node that has reported broken hardware as the root cause exclude_after times is excluded if
 * enough others are left (round_exclude.c), and no agent of that host may join again.
 *
 * A node that fails first in two rounds in a row makes room for a spare, if there is one. The node
 * of the rendezvous server does not: its end would end the run while workers elsewhere live.
 *
 * Among the failures that are reported before the decision what follows, the root cause is the one
 * that happened first, if this is certain (failures.h), else the one that was reported first.
 *
 * A failure costs one restart of the run's budget, whichever node it is on; a lost, leaving or new
 * node costs none, nor does a round that a user asked for (round_asked.c). A failure after a STOP
 * was sent is a consequence of it and costs nothing either. The same failure again right after the
 * start ends the run at once (crash_loop.h), and so does a program that does not exist.
 *
 * When a node dies, workers elsewhere may fail before its lease is over. So a failure stops the
 * world at once, but what follows stays undecided until every other member has answered that STOP:
 * then the failure was genuine. If a member is lost before it has answered, its loss is the root
 * cause, and the failure a consequence. Live members answer within a round trip; a second STOP
 * tells them the decision.
 *
 * With --survive a lost rank is sent as a LOSS, not as a failure, and the others may continue in
 * the same generation (round_running.c); an epoch counts the decisions on which ranks do. When a
 * node is lost, the ranks of the other nodes may continue if at least min nodes are left; with
 * --survive-replace another node takes the lost node's place meanwhile (round_newcomer.c).
 *
 * With fewer than min nodes the run waits for a replacement until the join deadline. A run without
 * members is forgotten once none of its workers can be alive.
 *
 * No socket, clock, random number or log inside: `now_ms` is the server's monotonic clock, and a
 * command is an id and a message, so that it can be recorded and replayed. One command costs O(1),
 * those that reach every member O(N) (START: O(N log N)). */
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
        *expected; /* borrowed: names of the hosts that should join; may be NULL */
    size_t expected_count;
    /* Borrowed: of each of these hosts, named or not, where each task is a member, and messages count tasks; NULL:
     * one member each. */
    const int *expected_tasks;
    uint64_t join_timeout_ms;
    uint64_t last_call_ms;
    uint64_t lost_after_ms;
    uint64_t exclude_after; /* hardware faults of a node; 0: never */
    uint32_t node_unit;     /* worlds have a multiple of so many nodes; 0: as 1 */
    uint64_t
        pause_ms; /* silence after which a paused member is lost; below lost_after_ms: no pause */
    uint64_t instance; /* random; tells this run from another one of the same id */
    uint64_t found_after_ms; /* no first world that is not full before this */
    bool
        is_kept; /* kept without members until its verdict: other servers know of this run */
    uint16_t
        endpoint_port; /* static backend: START names it instead of a store_port; else 0 */
};

enum round_command_kind {
    ROUND_ADD,     /* a new member: `link` */
    ROUND_MESSAGE, /* `message` from member `id` */
    ROUND_GONE,    /* the connection of `id` ended: `reason` */
    ROUND_TICK,    /* round_next_ms() has come */
    ROUND_RESUME,  /* member `id` resumes: `link`, and `message` is its RESUME */
    ROUND_DIRECT, /* no proxy between the kernel of `id` and ours: from now on it may be paused */
    ROUND_PAUSED, /* answer to round_find_unsure(): the host has acknowledged all that we sent */
    ROUND_SILENT, /* ... the host has not */
};

struct round_command {
    enum round_command_kind kind;
    uint64_t id;
    const struct member_link *link; /* borrowed, like all pointers here */
    const struct ct_message
        *message; /* JOIN HEARTBEAT FAILURE STOPPING STOPPED SUCCEEDED LEAVE ... */
    uint64_t waited_ms; /* MESSAGE: time since our kernel received it */
    uint64_t rtt_ms;    /* ... upper limit of a round trip to its sender */
    const char *reason;
    bool is_owed; /* GONE: not all messages to it had been sent */
};

enum round_action_kind {
    ROUND_SEND_START,        /* round_copy_start() */
    ROUND_SEND_WAITING,      /* round->waiting */
    ROUND_SEND_STOP,         /* round->stop */
    ROUND_SEND_VERDICT,      /* round->verdict */
    ROUND_SEND_REFUSE,       /* round->refuse; then close the connection */
    ROUND_SEND_RESIZE,       /* round->resize */
    ROUND_SEND_DRAIN,        /* round->drain */
    ROUND_SEND_DRAINED,      /* round->drained, to the member that asked */
    ROUND_SEND_RESTART,      /* round->restart, to the member that asked */
    ROUND_SEND_OFFER,        /* round->offer */
    ROUND_SEND_RELOAD,       /* round->reload */
    ROUND_SEND_RELOADED,     /* round->reloaded, to the member that asked */
    ROUND_SEND_REACHABILITY, /* round->reachability: all members have proven theirs */
    ROUND_SEND_LOSS,         /* round->loss */
    ROUND_SEND_MEMBERS,      /* addresses of the members */
    ROUND_SEND_WORLD,        /* round->world */
    ROUND_SEND_GROW,         /* round->grow */
    ROUND_SEND_PEER,         /* data that the member's host has to acknowledge */
    ROUND_DROP,              /* close the connection: no member any more */
    ROUND_CHANGED,           /* `from` became `to`; for logs and events */
    ROUND_SEND_RESUMED,      /* round->resumed */
    ROUND_REMOVED,           /* `id` is no member any more; for the journal */
    ROUND_FORGET, /* no member is left: destroy the round. Always the last action */
};

struct round_action {
    enum round_action_kind kind;
    uint64_t id; /* of the member */
    void *peer;  /* link.peer of the member; valid even after the member was removed */
    enum round_state from, to;
    uint32_t place;  /* WAITING: of a spare, from 1; else 0 */
    const char *why; /* static text */
};

struct round {
    /* Other files may read these. */
    struct round_settings settings;
    enum round_state state;
    uint64_t generation; /* of the current or last world; 0: none yet */
    uint32_t restart_count;
    uint32_t world_count; /* members that got the last START and are not lost */
    /* Nodes that took a lost node's place in this world, also those that were lost later. */
    uint32_t newcomers;
    uint64_t lost_count; /* members lost from a world, since the run began */
    bool is_undecided;   /* STOPPING, and asked members have not answered yet */
    struct member_table members;

    /* What the caller has to do after the last step; valid until the next step. */
    struct round_action *actions;
    size_t action_count;
    struct ct_waiting waiting;
    struct ct_stop stop;
    struct ct_verdict verdict;
    struct ct_refuse refuse;
    struct ct_resize resize;
    struct ct_drain drain, drained;
    struct ct_restart restart;
    struct ct_reload reload; /* the last one that all have accepted; number 0: none */
    struct ct_reload offer;  /* all are being asked; number 0: none */
    struct ct_reload reloaded;
    /* The number of `reload` that this world began with. After a restart of this server the journal
     * has it; `reload` comes from the agents. */
    uint64_t world_reload;
    struct ct_reachability reachability;
    struct ct_loss loss;   /* the last one; losses 0: none in this generation */
    struct ct_world world; /* the ranks that continue; epoch 0: all that were started */
    struct ct_grow grow;   /* the last one; generation 0: none in this one */
    struct ct_resumed resumed;
    struct ct_list news; /* struct member: changed since the journal took it */
    /* The common part of START, for the nodes of this world and for those that took a lost node's
     * place. */
    struct ct_start start, new_start;

    /* Private. */
    bool
        is_carried_on; /* a rank of the previous `world` is in this one; false after a restore */
    uint8_t lost[CT_WORLD_BYTES];  /* ranks of this generation; a bit each */
    uint8_t still[CT_WORLD_BYTES]; /* ... of members that wait for the next `world` */
    size_t action_capacity;
    struct member **scratch; /* room for all members */
    size_t scratch_capacity;
    size_t counts[MEMBER_LEFT + 1]; /* members by state */
    size_t missing_survivors;       /* survivors that are CONNECTED: expected to join */
    size_t asked_count;             /* members that is_asked */
    bool owes_spares;               /* members are spares and do not know it */
    bool is_finishing; /* ranks of a member have succeeded: no newcomers any more */
    bool has_fingerprint;
    uint64_t fingerprint; /* of the first JOIN */
    uint8_t outcome;      /* enum ct_outcome that follows STOPPING; 0: the next round */
    uint8_t exit_code;
    struct failures failures;     /* since the last START */
    struct hang_views hang_views; /* ... of members that have stopped */
    bool is_end; /* the current command is the member's last report of this world */
    uint64_t waited_ms, rtt_ms; /* of the current command */
    struct crash_loop crash_loop;
    struct poison poison;
    struct round_fault {
        char host[CT_HOST_MAX];
        uint32_t count; /* root causes that reported broken hardware; 0: unused entry */
        bool is_out;    /* no agent of this host may join again */
    } faults[ROUND_FAULTS_MAX];
    uint8_t broken_fate;  /* enum ct_culprit_fate of the last broken host; 0: none */
    uint64_t culprit_id;  /* the member of the last root cause */
    bool culprit_is_kept; /* not excluded because the rendezvous server runs there */
    struct networks networks; /* networks that were cut */
    struct host_list missing;
    uint64_t offered_by; /* the member that asked for `offer` */
    uint64_t offer_deadline_ms;
    struct contacts contacts;     /* of missing and of refused nodes */
    struct ct_lease_queue leases; /* of members that cannot be told from paused */
    struct ct_lease_queue direct_leases; /* of the other members: a fifth shorter */
    struct ct_lease_queue probes; /* of members that were sent a PEER: the last fifth */
    struct ct_list unsure;        /* of members whose last fifth is over */
    struct ct_lease_queue away;   /* members whose connection broke */
    uint64_t floor; /* the next generation is above this one, which an agent knows of */
    uint64_t started_ms;
    uint64_t stopping_ms; /* begin of STOPPING, or of this server after a restart */
    /* Deadline for members to join, or to stop. */
    uint64_t join_deadline_ms;
    /* End of the last call; UINT64_MAX: it has not begun. */
    uint64_t last_call_ms;
    /* No world starts before this time: workers of a lost node may live until then. 0: no such
     * workers. */
    uint64_t fence_ms;
    /* The same for workers of another server, or from before this server was restarted. */
    uint64_t held_ms;
    /* No new `world` before this time: ranks of a lost node may live until then. 0: no such
     * ranks. */
    uint64_t ranks_fence_ms;
    /* Until then all nodes that may continue without a lost node must have sent STILL. 0: no node
     * is lost, or the new `world` is decided. */
    uint64_t survive_due_ms;
    /* Until then an announced newcomer waits for its place. 0: no newcomer waits. */
    uint64_t newcomer_due_ms;
    struct ct_failure lost_node; /* the last lost node */
    bool sends_loss;             /* send LOSS to all at the end of this step */
    /* When WAITING is sent to all; UINT64_MAX: nothing changed. */
    uint64_t waiting_due_ms;
    uint64_t waiting_sent_ms;
};

/* 0, -EINVAL (impossible settings), -ENOMEM. */
int round_create(struct round **out, const struct round_settings *settings);
void round_destroy(struct round *round);
/* True if all members are gone, and the run waits for the end of their leases or for their
 * return. */
bool round_is_deserted(const struct round *round);
/* The run stops waiting for the end of its workers: the caller makes the next run of this id wait
 * for them. */
void round_give_up(struct round *round);
/* A deserted run continues as a new one, of the same instance: the new one starts no world before
 * the workers of the old one are dead, gets no more restarts than the old one has left, and counts
 * the hardware faults of nodes on. */
void round_succeed(struct round *round, const struct round *deserted);
/* When all workers are certainly dead, without any further message: those of lost nodes, and of
 * members that have not reported the end of theirs. The node of this server is not counted. 0: none
 * lives. */
uint64_t round_last_worker_ms(const struct round *round);
/* No world starts before leases given until given_ms end and their workers are killed: there may be
 * workers that this server does not know of. */
void round_hold(struct round *round, uint64_t given_ms);
/* The same until until_ms, whatever the lease. */
void round_hold_until(struct round *round, uint64_t until_ms, uint64_t now_ms);
/* The first world does not start before until_ms. */
void round_wait(struct round *round, uint64_t until_ms);
/* By our clock: how long after a lease of lost_after_ms was given its last worker is certainly
 * dead. */
uint64_t round_outlive_ms(uint64_t lost_after_ms);
/* An agent knows of this generation of the run: the next generation is above it. */
void round_raise_floor(struct round *round, uint64_t generation);
/* 0, or -ENOMEM (only ROUND_ADD allocates; the member was not added), or -ENOENT (only
 * ROUND_RESUME: there is no such membership any more). Unknown ids and messages of another
 * generation do nothing. */
int round_step(struct round *round, const struct round_command *command,
               uint64_t now_ms);
/* For a server that restarts from a journal: the members have no connections yet. No heartbeat that
 * was sent after served_ms has been acknowledged; no world starts before the workers that an
 * earlier acknowledgement keeps alive are dead. A member that resumes within most of a lease from
 * now_ms is not lost: a world without it costs more than the wait. 0, -ENOMEM, or -EBADMSG: no
 * possible state. */
int round_restore(struct round *round, uint64_t served_ms, uint64_t now_ms);
/* A member for which the caller must ask the kernel whether its host acknowledges. Answer
 * ROUND_PAUSED if it does, or if bytes from it are still unread, else ROUND_SILENT. NULL: none.
 * Call this after every step. */
const struct member *round_find_unsure(const struct round *round);
/* When the round needs a ROUND_TICK; UINT64_MAX: never. */
uint64_t round_next_ms(const struct round *round);
/* Notes that a node of this name was refused before it was a member, for messages. address: see contacts_note(). */
void round_note_refused(struct round *round, const char *host, const char *address,
                        int code, uint64_t now_ms);
const char *round_state_name(enum round_state state);
/* The START of a member of this world. */
void round_copy_start(struct ct_start *out, const struct round *round,
                      const struct member *member);
/* Stores `start` as the START of this member. */
void round_set_start(struct round *round, struct member *member,
                     const struct ct_start *start);
