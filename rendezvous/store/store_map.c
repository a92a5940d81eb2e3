/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/store/store_map.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "worker_sdk/base/alloc.h"

enum {
    MAP_MIN_SLOTS = 64
};

/* ---- SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF") ---------------- */

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[0] = rotate(v[0], 32);
    v[2] += v[3];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[2] = rotate(v[2], 32);
}

static void sip_mix(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v);
    v[0] ^= word;
}

uint64_t store_map_hash(const struct store_map *map, const uint8_t *key, size_t length)
{
    uint64_t v[4] = {
        map->seed[0] ^ 0x736f6d6570736575u,
        map->seed[1] ^ 0x646f72616e646f6du,
        map->seed[0] ^ 0x6c7967656e657261u,
        map->seed[1] ^ 0x7465646279746573u,
    };
    uint64_t word = 0;
    size_t left = length;

    for (; left >= sizeof word; left -= sizeof word, key += sizeof word) {
        memcpy(&word, key, sizeof word);
        sip_mix(v, le64toh(word));
    }
    word = (uint64_t)length << 56;
    for (size_t i = 0; i < left; i++)
        word |= (uint64_t)key[i] << (8 * i);
    sip_mix(v, word);
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* ---- Table ------------------------------------------------------------------------------ */

int store_map_init(struct store_map *map)
{
    *map = (struct store_map){.capacity = MAP_MIN_SLOTS};
    if (!(map->slots = ct_zalloc_array(map->capacity, sizeof *map->slots)))
        return -ENOMEM;
    /* Without entropy (just after boot) the fixed seed is used: it hashes just as evenly. */
    if (getrandom(map->seed, sizeof map->seed, GRND_NONBLOCK) < 0)
        map->seed[0] = (uint64_t)(uintptr_t)map;
    return 0;
}

void store_map_deinit(struct store_map *map)
{
    free(map->slots);
    *map = (struct store_map){0};
}

struct store_map_node *store_map_find(const struct store_map *map, uint64_t hash,
                                      const uint8_t *key, size_t length)
{
    size_t mask = map->capacity - 1;

    for (size_t i = hash & mask; map->slots[i].node; i = (i + 1) & mask) {
        struct store_map_node *node = map->slots[i].node;

        if (map->slots[i].hash == hash && node->key_length == length &&
            (!length || memcmp(node->key, key, length) == 0))
            return node;
    }
    return NULL;
}

static void place(struct store_map *map, struct store_map_node *node)
{
    size_t mask = map->capacity - 1;
    size_t i = node->hash & mask;

    while (map->slots[i].node)
        i = (i + 1) & mask;
    map->slots[i] = (struct store_map_slot){node->hash, node};
}

static int grow(struct store_map *map)
{
    struct store_map old = *map;

    map->capacity = 2 * old.capacity;
    if (!(map->slots = ct_zalloc_array(map->capacity, sizeof *map->slots))) {
        *map = old;
        return -ENOMEM;
    }
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].node)
            place(map, old.slots[i].node);
    free(old.slots);
    return 0;
}

int store_map_add(struct store_map *map, struct store_map_node *node)
{
    int rc;

    if (map->count >= map->capacity / 3 * 2 && (rc = grow(map)) < 0)
        return rc;
    place(map, node);
    map->count++;
    return 0;
}

/* Closes the gap: later nodes of the same run move up, so that no tombstones are needed. */
void store_map_remove(struct store_map *map, struct store_map_node *node)
{
    size_t mask = map->capacity - 1;
    size_t gap = node->hash & mask;

    while (map->slots[gap].node != node)
        gap = (gap + 1) & mask;
    for (size_t i = (gap + 1) & mask; map->slots[i].node; i = (i + 1) & mask) {
        size_t home = map->slots[i].hash & mask;

        if (((i - home) & mask) < ((i - gap) & mask)) /* its home is after the gap */
            continue;
        map->slots[gap] = map->slots[i];
        gap = i;
    }
    map->slots[gap].node = NULL;
    map->count--;
}
