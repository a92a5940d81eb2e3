/* SPDX-License-Identifier: Apache-2.0 */
/* A set of a manifest's chunks: the chunks that a host still needs. It is sent as runs of
 * consecutive chunks (u32 first, u32 count, ...) in as many messages as necessary. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stage_set {
    uint32_t size; /* number of chunks of the manifest */
    uint32_t count;
    uint64_t *bits; /* owned */
};

/* Makes an empty set. 0, -ENOMEM. */
int stage_set_init(struct stage_set *set, uint32_t size);
void stage_set_deinit(struct stage_set *set); /* zeroed is fine */
bool stage_set_has(const struct stage_set *set, uint32_t chunk);
void stage_set_add(struct stage_set *set, uint32_t chunk);
void stage_set_remove(struct stage_set *set, uint32_t chunk);
/* The first chunk of the set from `from` on; set->size when there is none. */
uint32_t stage_set_next(const struct stage_set *set, uint32_t from);

/* Writes runs from chunk *from on into data, and sets *from to the chunk to continue at: set->size
 * when all are written. Returns the number of bytes. */
size_t stage_set_encode(const struct stage_set *set, uint32_t *from, uint8_t *data,
                        size_t size);
/* Adds the chunks of one message. 0, -EBADMSG: malformed, none or some chunks were added. */
int stage_set_decode(struct stage_set *set, const void *data, size_t length);
