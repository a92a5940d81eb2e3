/* SPDX-License-Identifier: Apache-2.0 */
/* Members: the agents of one run, which of them are in the world, and in which order.
 *
 *     CONNECTED ──JOIN──> READY ──START──> RUNNING ──SUCCEEDED──> SUCCEEDED
 *         ▲                                   │ STOP                  │ STOP
 *         └────────────STOPPED──────────── STOPPING <─────────────────┘
 *     any ──LEAVE──> LEAVING (its workers are still ending) or LEFT ──connection closed──> gone
 *
 * Order in a world: node_rank_hint, then the endpoint's host, then arrival. A member keeps its
 * arrival for as long as it is connected, so the order is kept over rounds. Ids are given by
 * the server and only grow: id order is arrival order. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/base/lease.h"
#include "worker_sdk/wire/message.h"

enum member_state {
    MEMBER_CONNECTED,
    MEMBER_READY,
    MEMBER_RUNNING,
    MEMBER_SUCCEEDED,
    MEMBER_STOPPING,
    MEMBER_LEAVING,
    MEMBER_LEFT,
};

/* What the server knows of an agent from its connection and its HELLO. */
struct member_link {
    uint64_t id;
    uint64_t
        key; /* the agent needs it to resume on another connection; 0: it may not */
    void *
        peer; /* borrowed, opaque: returned in actions, for the sender of the messages */
    char host[CT_HOST_MAX];            /* its name as it told us, for messages */
    char seen_as[CT_ADDR_TEXT_MAX];    /* its address as the server sees it */
    char reached_at[CT_ADDR_TEXT_MAX]; /* the server's address that it connected to */
    bool serves; /* the server is in its process, and the run is lost with it */
    uint32_t min_nodes, max_nodes; /* of its HELLO; 0: not known */
    struct ct_job job; /* empty: not known, or told before this server was restarted */
};

/* The part of the last START that is for this member alone; round->start has the common part. */
struct member_start {
    uint64_t generation; /* of the last world it was in; 0: none */
    uint32_t group_rank;
    uint32_t group_world_size;
    uint32_t rank_base;
    uint32_t world_size;
    uint32_t role_rank_base;
    uint32_t role_world_size;
    uint8_t is_new;
    uint8_t peer_count;
    struct ct_start_peer peers[CT_START_PEERS_MAX];
    uint8_t role_count;
    struct ct_role_place roles[CT_ROLES_MAX];
};

struct member {
    struct member_link link;
    enum member_state state;
    bool is_survivor;  /* of the last world, expected in the next one */
    bool is_excluded;  /* makes room for a spare when it joins again */
    bool has_proven;   /* has proven that it reaches the others, in this world */
    bool is_still;     /* its ranks do nothing until the next round->world */
    bool is_announced; /* READY: it gets a lost node's place shortly */
    bool is_asked;     /* its answer to an undecided STOP is missing */
    int64_t step;      /* smallest step of its workers; -1: none */
    uint64_t moved_ms; /* when one last made progress, by our clock; 0: not known */
    bool
        is_direct; /* no proxy between its kernel and ours: we can tell lost from paused */
    bool is_paused; /* silent, but its host acknowledges */
    bool
        joins_again; /* it resumed while it waited for a START: it sends JOIN once more */
    bool owes_answer;        /* to round->offer */
    uint64_t sent_reload;    /* the number of the last RELOAD that it was sent */
    uint64_t resume_attempt; /* of the last RESUME that was accepted */
    uint64_t received_ms;
    uint64_t
        probed_ms; /* when it was last sent a PEER because it was silent; 0: not yet */
    struct ct_lease lease;
    bool is_away;         /* its connection broke, and it may resume on another one */
    struct ct_lease away; /* how long it may resume */
    char parted[192];     /* why its connection broke; for messages */
    struct ct_list news;  /* in round->news: changed since the journal took it */
    struct ct_join join;  /* valid from READY on */
    struct member_start start;
};

struct member_table {
    struct member **list; /* by id; owned */
    size_t count;
    size_t capacity;
};

/* Each member in turn, in the order of arrival; none may be added in the body. */
#define member_for_each(it, table)                                                     \
    for (struct member * it, **at_##it = (table)->list;                                \
         (size_t)(at_##it - (table)->list) < (table)->count &&                         \
         ((it) = *at_##it, true);                                                      \
         at_##it++)

void member_table_deinit(struct member_table *table);
/* Adds a member; its id must be above all others. NULL when memory is short. */
struct member *member_add(struct member_table *table, const struct member_link *link);
void member_remove(struct member_table *table, uint64_t id);
struct member *member_find(const struct member_table *table, uint64_t id);

/* True for RUNNING, SUCCEEDED, STOPPING and LEAVING: its workers may be alive, or have
 * succeeded. */
bool member_is_in_world(const struct member *member);
const char *member_state_name(enum member_state state);

/* Puts up to `max` READY members into `out`, survivors of the last world first, by their group rank in
 * it, then the others by arrival; sorted in the order of the world. Returns how many. */
size_t member_choose(const struct member_table *table, size_t max, struct member **out);
/* Fills ranks and sizes of each member's `start`: base ranks are sums of the slots of the members
 * before, whatever their role; role ranks count those of the same role (torchrun's rule); a member
 * may have several roles. Walks over all members once for each role name. */
void member_assign_ranks(struct member **world, size_t count);
