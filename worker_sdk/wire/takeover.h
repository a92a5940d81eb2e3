/* SPDX-License-Identifier: Apache-2.0 */
/* When the rendezvous host is lost: which of the nodes that are left may go on, and when.
 *
 * Let M be the members of the last round, MIN the fewest nodes of a world. A group of members
 * without the host may go on iff it has at least MIN of them and fewer than MIN are left over. The
 * host may begin or keep a world iff those that are not with it are no such group. The two are
 * complements, and two such groups always share a member, so there is one world at most.
 *
 * "With it" is a lease. The host sends ECHO with its own clock, the member sends it back: so the
 * host knows until when the member followed for certain. A member follows one server at a time,
 * and tells the next one how long ago it has heard the last ECHO of the one before.
 *
 *     host      acknowledges heartbeats of nodes with workers, and starts worlds, only while those
 *               whose last ECHO is older than PROOF are no group that may go on
 *     member    has no workers a lease after the last acknowledged heartbeat (agent/link.h)
 *     heir      starts no world before WAIT = PROOF + lease has passed since the last ECHO that
 *               any of its members has heard elsewhere
 *
 *   member   FOLLOWS ──link lost──> SEEKS: no worker left; asks the members in the order of their
 *               ▲                     │    ranks; when it is its own turn, it serves
 *               └──WELCOME, START─────┘
 *   server   STANDBY ──its agent's turn──> HEIR: FORMING with M, as above ──START──> host
 *               ▲─────────── nobody has come ──────┘
 *
 * The roster of a round is told only when that of the round before is of no use to any group any
 * more: enough of its members have proven (ECHO) that they have the new START. */
#ifndef CT_WIRE_TAKEOVER_H
#define CT_WIRE_TAKEOVER_H

#include "worker_sdk/wire/message.h"

enum {
    /* Every member is told of every other one. */
    CT_TAKEOVER_NODES_MAX = 256,
};

static inline bool ct_takeover_may(uint64_t members, uint64_t group, uint64_t min_nodes)
{
    return min_nodes >= 2 && group >= min_nodes && members - group < min_nodes;
}

/* True when the loss of the host alone leaves a group that may go on. */
static inline bool ct_takeover_is_possible(uint64_t members, uint64_t min_nodes)
{
    return members > 1 && members <= CT_TAKEOVER_NODES_MAX &&
           ct_takeover_may(members, members - 1, min_nodes);
}

/* How long an ECHO proves that its member follows. Members answer once a heartbeat. */
static inline uint64_t ct_takeover_proof_ms(uint64_t lost_after_ms,
                                            uint64_t heartbeat_ms)
{
    return lost_after_ms / 2 > 2 * heartbeat_ms ? lost_after_ms / 2 : 2 * heartbeat_ms;
}

/* WAIT; the twentieth is for clocks that do not run alike. */
static inline uint64_t ct_takeover_wait_ms(uint64_t lost_after_ms, uint64_t proof_ms)
{
    return proof_ms + lost_after_ms + lost_after_ms / 20;
}

/* What an heir goes on with. */
struct ct_heritage {
    struct ct_hello hello; /* the limits as they are now */
    uint64_t generation;   /* of M */
    uint32_t restart_count;
    uint32_t min_nodes;   /* when M's round began */
    const uint64_t *keys; /* of M, by group rank; borrowed */
    size_t count;
    size_t self; /* the heir's */
    size_t
        leader; /* the lost one's; self: a host that had given up, and tries once more */
};

#endif
