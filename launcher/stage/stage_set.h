/* SPDX-License-Identifier: Apache-2.0 */
/* A set of a manifest's chunks: what a host still needs. It travels in runs of neighbours, as
 * many messages as it takes: u32 first, u32 count, again and again. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stage_set {
    uint32_t size; /* chunks that there are */
    uint32_t count;
    uint64_t *bits; /* owned */
};

/* Empty. 0, -ENOMEM. */
int stage_set_init(struct stage_set *set, uint32_t size);
void stage_set_deinit(struct stage_set *set); /* zeroed is fine */
bool stage_set_has(const struct stage_set *set, uint32_t chunk);
void stage_set_add(struct stage_set *set, uint32_t chunk);
void stage_set_remove(struct stage_set *set, uint32_t chunk);
/* The first chunk of the set from `from` on; set->size when there is none. */
uint32_t stage_set_next(const struct stage_set *set, uint32_t from);

/* Writes runs from *from on into data; *from becomes where to continue. Returns the bytes; *from is
 * set->size when that was all. */
size_t stage_set_encode(const struct stage_set *set, uint32_t *from, uint8_t *data,
                        size_t size);
/* Adds what one message has. 0, -EBADMSG: nothing or some of it was added. */
int stage_set_decode(struct stage_set *set, const void *data, size_t length);
