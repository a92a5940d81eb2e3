/* SPDX-License-Identifier: Apache-2.0 */
/* Some bytes of a chunk as a message: u32 chunk, u32 offset in the chunk, the bytes. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    STAGE_PIECE_HEAD_BYTES = 8
};

struct stage_piece {
    uint32_t chunk;
    uint32_t offset;
    const uint8_t *data; /* borrowed */
    size_t length;
};

/* Writes the header: chunk and offset. */
void stage_piece_put_head(uint8_t head[STAGE_PIECE_HEAD_BYTES], uint32_t chunk,
                          uint32_t offset);
/* 0, -EBADMSG: too short, or without bytes. */
int stage_piece_decode(struct stage_piece *out, const void *data, size_t length);
