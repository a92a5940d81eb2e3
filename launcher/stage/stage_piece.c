/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stage/stage_piece.h"

#include <errno.h>

#include "worker_sdk/base/bytes.h"

void stage_piece_put_head(uint8_t head[STAGE_PIECE_HEAD_BYTES], uint32_t chunk,
                          uint32_t offset)
{
    struct ct_writer out;

    ct_writer_init(&out, head, STAGE_PIECE_HEAD_BYTES);
    ct_write_u32(&out, chunk);
    ct_write_u32(&out, offset);
}

int stage_piece_decode(struct stage_piece *out, const void *data, size_t length)
{
    struct ct_reader in;

    ct_reader_init(&in, data, length);
    out->chunk = ct_read_u32(&in);
    out->offset = ct_read_u32(&in);
    out->length = in.left;
    out->data = ct_read_raw(&in, in.left);
    return out->length > 0 ? ct_read_end(&in) : -EBADMSG;
}
