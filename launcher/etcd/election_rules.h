/* SPDX-License-Identifier: Apache-2.0 */
/* The times that make election.h safe, for a lease of ttl_ms in etcd. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    ELECTION_RENEWALS_PER_TTL = 6,
    ELECTION_HURRIED_PER_TTL =
        12,                    /* at most, when heartbeats wait to be acknowledged */
    ELECTION_CLOCK_ERROR = 20, /* etcd's clock may be wrong by 1/20 */
};

/* Until when the elected server may send, after a renewal that was asked for at asked_ms and has
 * succeeded: no other node can be elected before. */
static inline uint64_t election_speaks_until_ms(uint64_t asked_ms, uint64_t ttl_ms)
{
    return asked_ms + ttl_ms / 2;
}

/* Etcd's leader renews a lease without asking the other members. A leader that was replaced and
 * does not know it yet (its disk hangs, it was stopped) confirms a renewal, while the new leader
 * lets the lease run out. Only when a later request that the members must agree on is answered in
 * the same term of raft, the confirming leader was still the leader. */
static inline bool election_is_renewed(int64_t kept_term, int64_t checked_term)
{
    return kept_term == checked_term;
}

/* The latest time at which the last renewal of a lease that has run out by now began; 0 on a
 * machine that was started later. */
static inline uint64_t election_served_ms(uint64_t now_ms, uint64_t ttl_ms)
{
    const uint64_t silence_ms = ttl_ms - ttl_ms / ELECTION_CLOCK_ERROR;

    return now_ms > silence_ms ? now_ms - silence_ms : 0;
}

/* What a node that watches the elected server's key knows, where each renewal writes that key once more. */
struct election_sight {
    int64_t revision;    /* of the newest change */
    uint64_t changed_ms; /* when that was received */
    int64_t
        end_revision; /* that deleted the key, if all before were seen; 0: unknown */
};

static inline void election_see(struct election_sight *sight, int64_t revision,
                                uint64_t now_ms)
{
    if (revision != sight->revision)
        *sight = (struct election_sight){.revision = revision, .changed_ms = now_ms};
}

/* The same, from the changes that were seen: without the time that etcd took to end the lease. It
 * holds unless another server was elected and ended unseen: that server wrote the journal before it
 * sent. */
static inline uint64_t election_sight_served_ms(const struct election_sight *sight,
                                                int64_t journal_revision,
                                                uint64_t served_ms)
{
    const bool holds = sight->end_revision > journal_revision;

    return holds && sight->changed_ms < served_ms ? sight->changed_ms : served_ms;
}

/* After a renewal was asked for, the next one; and when somebody waits for it. */
static inline uint64_t election_renew_ms(uint64_t ttl_ms)
{
    return ttl_ms / ELECTION_RENEWALS_PER_TTL;
}

static inline uint64_t election_hurried_ms(uint64_t ttl_ms)
{
    return ttl_ms / ELECTION_HURRIED_PER_TTL;
}

/* How long one call may take while the lease is what counts. */
static inline uint64_t election_call_ms(uint64_t ttl_ms)
{
    return ttl_ms / ELECTION_RENEWALS_PER_TTL * 2;
}
