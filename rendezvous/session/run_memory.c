/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/run_memory.h"

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"

void run_memory_init(struct run_memory *memory)
{
    *memory = (struct run_memory){0};
    ct_list_init(&memory->entries);
}

static void drop(struct run_memory *memory, struct run_memory_entry *entry)
{
    ct_list_remove(&entry->node);
    memory->count--;
    free(entry->faults);
    free(entry);
}

static struct run_memory_entry *first(const struct run_memory *memory)
{
    return ct_list_entry(memory->entries.next, struct run_memory_entry, node);
}

void run_memory_deinit(struct run_memory *memory)
{
    while (memory->count > 0)
        drop(memory, first(memory));
}

static struct run_memory_entry *find(const struct run_memory *memory,
                                     const char *run_id)
{
    ct_list_for_each(struct run_memory_entry, entry, &memory->entries, node) {
        if (strcmp(entry->run_id, run_id) == 0)
            return entry;
    }
    return NULL;
}

const struct run_memory_entry *run_memory_find(const struct run_memory *memory,
                                               const char *run_id)
{
    return find(memory, run_id);
}

static size_t place_of(const char *run_id)
{
    return ct_hash_mix(ct_hash(run_id, strlen(run_id))) % RUN_MEMORY_PLACES;
}

const struct run_memory_lost *run_memory_find_lost(const struct run_memory *memory,
                                                   const char *run_id)
{
    return &memory->lost[place_of(run_id)];
}

/* Notes that an entry is lost: workers of its run may live until until_ms. */
static void lose(struct run_memory *memory, const char *run_id, uint64_t until_ms,
                 uint64_t now_ms)
{
    struct run_memory_lost *lost = &memory->lost[place_of(run_id)];
    const uint64_t latest_ms = ct_deadline_after(now_ms, RUN_MEMORY_LOST_MAX_MS);

    lost->at_ms = now_ms;
    if (until_ms > latest_ms)
        until_ms = latest_ms;
    if (until_ms > lost->until_ms)
        lost->until_ms = until_ms;
}

/* NULL: out of memory; then the run is forgotten. */
static struct run_memory_entry *touch(struct run_memory *memory, const char *run_id,
                                      uint64_t now_ms)
{
    struct run_memory_entry *entry = find(memory, run_id);

    if (entry) {
        ct_list_remove(&entry->node);
    } else {
        if (memory->count == RUN_MEMORY_MAX) {
            lose(memory, first(memory)->run_id, first(memory)->until_ms, now_ms);
            drop(memory, first(memory));
        }
        if (!(entry = ct_zalloc(sizeof *entry))) {
            lose(memory, run_id, 0, now_ms);
            return NULL;
        }
        (void)ct_copy(entry->run_id, sizeof entry->run_id, run_id); /* same size */
        memory->count++;
    }
    ct_list_add(&memory->entries, &entry->node);
    return entry;
}

static void raise_generation(struct run_memory_entry *entry, uint64_t generation)
{
    /* The number comes from an agent and may be wrong: it must not come near the end of its
     * range. */
    if (generation > entry->generation && generation - entry->generation < UINT32_MAX)
        entry->generation = generation;
}

/* Without memory for them the faults are forgotten. */
static void keep_faults(struct run_memory_entry *entry, const struct round *round)
{
    free(entry->faults);
    entry->faults = round->faults[0].count > 0
                        ? ct_zalloc_array(ROUND_FAULTS_MAX, sizeof *entry->faults)
                        : NULL;
    if (entry->faults)
        memcpy(entry->faults, round->faults, sizeof round->faults);
}

void run_memory_keep(struct run_memory *memory, const char *run_id,
                     const struct round *round, uint64_t now_ms)
{
    struct run_memory_entry *entry = touch(memory, run_id, now_ms);

    if (!entry)
        return;
    entry->instance = round->settings.instance;
    entry->restarts = round->restart_count;
    entry->min_nodes = round->settings.min_nodes;
    entry->max_nodes = round->settings.max_nodes;
    keep_faults(entry, round);
    raise_generation(entry, round->generation);
    raise_generation(entry, round->floor); /* an agent knew of this one */
}

void run_memory_restore(const struct run_memory_entry *entry, struct round *round)
{
    round_raise_floor(round, entry->generation);
    if (entry->instance != round->settings.instance)
        return;
    round->restart_count = entry->restarts;
    round->settings.min_nodes = entry->min_nodes;
    round->settings.max_nodes = entry->max_nodes;
    if (entry->faults && round->settings.exclude_after > 0)
        memcpy(round->faults, entry->faults, sizeof round->faults);
}

static struct run_memory_entry *outlive(struct run_memory *memory, const char *run_id,
                                        uint64_t generation, uint64_t until_ms,
                                        uint64_t now_ms)
{
    struct run_memory_entry *entry = touch(memory, run_id, now_ms);

    if (!entry) {
        lose(memory, run_id, until_ms, now_ms);
        return NULL;
    }
    if (until_ms > entry->until_ms)
        entry->until_ms = until_ms;
    raise_generation(entry, generation);
    return entry;
}

void run_memory_note(struct run_memory *memory, const char *run_id, uint64_t generation,
                     uint64_t until_ms, uint64_t now_ms)
{
    struct run_memory_entry *entry = outlive(memory, run_id, generation, until_ms,
                                             now_ms);

    if (entry)
        entry->received_ms = now_ms;
}

void run_memory_outlive(struct run_memory *memory, const char *run_id,
                        uint64_t generation, uint64_t until_ms, uint64_t now_ms)
{
    (void)outlive(memory, run_id, generation, until_ms, now_ms);
}
