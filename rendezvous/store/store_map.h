/* SPDX-License-Identifier: Apache-2.0 */
/* The hash table of a store: from byte strings to nodes that are part of their owner's structs.
 *
 * Open addressing with linear probing; the hash is SipHash-1-3 with a random key, because clients
 * choose the keys. The table owns its slots, not the nodes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct store_map_node {
    const uint8_t *key; /* borrowed: must live as long as the node is in the table */
    size_t key_length;
    uint64_t hash; /* hash of the key, by store_map_hash() of this table */
};

struct store_map_slot {
    uint64_t hash;
    struct store_map_node *node; /* NULL: free */
};

struct store_map {
    struct store_map_slot *slots; /* owned; a power of two of them */
    size_t capacity;
    size_t count;
    uint64_t seed[2];
};

/* 0, or -ENOMEM. deinit accepts a zeroed one. */
int store_map_init(struct store_map *map);
void store_map_deinit(struct store_map *map);
uint64_t store_map_hash(const struct store_map *map, const uint8_t *key, size_t length);
/* NULL: not in the table. */
struct store_map_node *store_map_find(const struct store_map *map, uint64_t hash,
                                      const uint8_t *key, size_t length);
/* The key must not be in the table yet. 0, or -ENOMEM. */
int store_map_add(struct store_map *map, struct store_map_node *node);
/* The node must be in the table. */
void store_map_remove(struct store_map *map, struct store_map_node *node);
