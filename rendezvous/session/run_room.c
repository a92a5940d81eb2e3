/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/run_room.h"

#include <string.h>

#include "rendezvous/session/session_limits.h"
#include "worker_sdk/base/clock.h"

struct tally {
    size_t count, deserted;
};

/* Bytes of an address that identify its user: an IPv6 user has a whole network with 2^64
 * addresses. */
static size_t shown_bytes(const uint8_t key[16])
{
    static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};

    return memcmp(key, v4_mapped, sizeof v4_mapped) == 0 ? 16 : 8;
}

static bool is_of(const struct run *run, const uint8_t key[16])
{
    uint8_t own[16];

    if (run->founder.any.sa_family == AF_UNSPEC)
        return false; /* the run was restored from a journal */
    ct_addr_key(own, &run->founder);
    return memcmp(own, key, shown_bytes(key)) == 0;
}

static void add(struct tally *tally, const struct run *run, int more)
{
    tally->count += (size_t)more;
    tally->deserted += round_is_deserted(run->round) ? (size_t)more : 0;
}

/* Its workers may live: the next run of this id waits for them, even if that has a shorter lease. */
static void give_up(struct run *run)
{
    run_memory_outlive(&run->all->memory, run->id, run->round->generation,
                       round_last_worker_ms(run->round), ct_now_ms());
    round_give_up(run->round);
    run_step(run, &(struct round_command){.kind = ROUND_TICK});
}

bool run_room_make(struct runs *runs, const struct ct_addr *from)
{
    struct tally all = {0}, theirs = {0};
    uint8_t key[16];

    ct_addr_key(key, from);
    ct_list_for_each(const struct run, run, &runs->list, node) {
        add(&all, run, 1);
        if (is_of(run, key))
            add(&theirs, run, 1);
    }
    ct_list_for_each_safe(struct run, its, &runs->list, node) {
        /* the oldest first */
        struct run *run = its;
        const bool is_theirs = is_of(run, key);

        if (!round_is_deserted(run->round) ||
            !((is_theirs && theirs.deserted >= RUNS_DESERTED_PER_ADDRESS_MAX) ||
              all.deserted >= RUNS_DESERTED_MAX))
            continue;
        add(&all, run, -1);
        if (is_theirs)
            add(&theirs, run, -1);
        give_up(run);
    }
    return theirs.count < RUNS_PER_ADDRESS_MAX;
}
