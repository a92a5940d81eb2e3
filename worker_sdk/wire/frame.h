/* SPDX-License-Identifier: Apache-2.0 */
/* Frames: the format of each message of ctrun's own protocol in a byte stream.
 *
 *     0      1      2        3     4..7             8..
 *     0xC7   0x52   version  kind  length (u32 LE)  body
 *
 * The first byte is no TCPStore query of any dialect and no letter of HTTP, so that one port can
 * serve all protocols. `version` is the sender's; a receiver that does not know this version
 * answers CT_MESSAGE_REFUSE, which names both versions, and closes. Pure functions of bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/base/buf.h"

enum {
    CT_FRAME_MAGIC_0 = 0xC7,
    CT_FRAME_MAGIC_1 = 0x52,
    CT_FRAME_VERSION = 8,
    CT_FRAME_HEADER_BYTES = 8,
    CT_FRAME_BODY_MAX_BYTES = 64 * 1024, /* a verdict with 16 failures is the largest */
};

struct ct_frame {
    uint8_t version;
    uint8_t kind;
    const uint8_t *body; /* borrowed from the stream buffer */
    size_t length;
};

/* Decodes the first frame of a stream. Returns its length (header and body); 0: more bytes are
 * needed; -EPROTO: no frame; -EMSGSIZE: too long. A frame of another version is returned unchanged:
 * the caller refuses it. */
int ct_frame_decode(const uint8_t *data, size_t length, struct ct_frame *out);
/* The header of a body of `length` bytes, at most CT_FRAME_BODY_MAX_BYTES. */
void ct_frame_write_header(uint8_t out[CT_FRAME_HEADER_BYTES], uint8_t kind,
                           size_t length);
/* Appends header and body to out. 0, -EMSGSIZE, or what ct_buf_append() says. */
int ct_frame_encode(struct ct_buf *out, uint8_t kind, const void *body, size_t length);
