/* SPDX-License-Identifier: Apache-2.0 */
/* Times that election.h owes its safety to, for a lease of ttl_ms in etcd. Pure. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    ELECTION_RENEWALS_PER_TTL = 6,
    ELECTION_HURRIED_PER_TTL =
        12,                    /* at most, when heartbeats wait to be acknowledged */
    ELECTION_CLOCK_ERROR = 20, /* one in so many, of etcd's clock */
};

/* After a renewal that was asked for at asked_ms and has succeeded, the elected server may speak until then:
 * nobody can be elected before. */
static inline uint64_t election_speaks_until_ms(uint64_t asked_ms, uint64_t ttl_ms)
{
    return asked_ms + ttl_ms / 2;
}

/* Etcd's leader renews a lease without asking the other members; one that has been replaced and does not
 * know it yet (its disk hangs, it was stopped) says that it has, while the next one lets it run out. Only
 * when what all members agree on later is answered in the same term of raft, the first was still the
 * leader. */
static inline bool election_is_renewed(int64_t kept_term, int64_t checked_term)
{
    return kept_term == checked_term;
}

/* The last renewal of a lease that has run out by now began then at the latest. A machine that has
 * just been started may be younger. */
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
        end_revision; /* in which the key was deleted, all before being seen; 0: unknown */
};

static inline void election_see(struct election_sight *sight, int64_t revision,
                                uint64_t now_ms)
{
    if (revision != sight->revision)
        *sight = (struct election_sight){.revision = revision, .changed_ms = now_ms};
}

/* The same, by what was seen, which does not count the time that etcd took to end the lease. It holds
 * unless another server came and went unseen: that one wrote the journal before it spoke. */
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
