/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/allegiance.h"

#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/wire/takeover.h"

int allegiance_begin(struct allegiance *allegiance, const struct ct_heritage *heritage,
                     bool is_heir)
{
    const size_t count = heritage->count;
    struct allegiance_entry *entries = ct_realloc_array(NULL, count, sizeof *entries);

    allegiance_end(allegiance);
    if (!entries)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        entries[i] = (struct allegiance_entry){.key = heritage->keys[i],
                                               .is_bound = i == heritage->self};
    allegiance->generation = heritage->generation;
    allegiance->min_nodes = heritage->min_nodes;
    allegiance->is_heir = is_heir;
    allegiance->count = count;
    allegiance->entries = entries;
    return 0;
}

void allegiance_end(struct allegiance *allegiance)
{
    free(allegiance->entries);
    *allegiance = (struct allegiance){.last_generation = allegiance->last_generation};
}

struct allegiance_entry *allegiance_find(const struct allegiance *allegiance,
                                         uint64_t key)
{
    for (size_t i = 0; i < allegiance->count && key != 0; i++) {
        if (allegiance->entries[i].key == key)
            return &allegiance->entries[i];
    }
    return NULL;
}

void allegiance_hear(struct allegiance *allegiance, uint64_t key, uint64_t time_ms,
                     uint64_t generation)
{
    struct allegiance_entry *entry = allegiance_find(allegiance, key);

    if (!entry)
        return;
    if (time_ms > entry->proof_ms)
        entry->proof_ms = time_ms;
    entry->is_bound |= generation > allegiance->generation;
}

void allegiance_lose(struct allegiance *allegiance, uint64_t key)
{
    struct allegiance_entry *entry = allegiance_find(allegiance, key);

    if (entry)
        entry->is_elsewhere = true;
}

void allegiance_release(struct allegiance *allegiance, uint64_t key)
{
    struct allegiance_entry *entry = allegiance_find(allegiance, key);

    if (entry)
        entry->is_bound = true;
}

/* `others` of the members may be elsewhere. */
static bool holds(const struct allegiance *allegiance, size_t others)
{
    const size_t count = allegiance->count;

    if (count == 0)
        return true;
    return allegiance->is_heir
               ? ct_takeover_may(count, count - others, allegiance->min_nodes)
               : !ct_takeover_may(count, others, allegiance->min_nodes);
}

static bool is_silent(const struct allegiance_entry *entry, uint64_t now_ms,
                      uint64_t limit_ms)
{
    if (entry->is_elsewhere)
        return true;
    return !entry->is_bound &&
           (entry->proof_ms == 0 ||
            (now_ms > entry->proof_ms && now_ms - entry->proof_ms > limit_ms));
}

bool allegiance_is_sure(const struct allegiance *allegiance, uint64_t now_ms,
                        uint64_t limit_ms)
{
    size_t others = 0;

    for (size_t i = 0; i < allegiance->count; i++)
        others += is_silent(&allegiance->entries[i], now_ms, limit_ms);
    return holds(allegiance, others);
}

bool allegiance_may_start(const struct allegiance *allegiance, uint64_t now_ms,
                          uint64_t limit_ms)
{
    size_t others = 0;

    for (size_t i = 0; i < allegiance->count; i++) {
        const struct allegiance_entry *entry = &allegiance->entries[i];

        others += (!entry->is_bound && !entry->is_here) ||
                  is_silent(entry, now_ms, limit_ms);
    }
    return holds(allegiance, others);
}

bool allegiance_is_over(const struct allegiance *allegiance)
{
    size_t others = 0;

    for (size_t i = 0; i < allegiance->count; i++)
        others += !allegiance->entries[i].is_bound ||
                  allegiance->entries[i].is_elsewhere;
    return holds(allegiance, others);
}
