/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/frame.h"

#include <errno.h>
#include <string.h>

#include "worker_sdk/base/bytes.h"

/* Whether the bytes that have arrived can be the beginning of a frame. */
static int begins_frame(const uint8_t *data, size_t length)
{
    return (length < 1 || data[0] == CT_FRAME_MAGIC_0) &&
           (length < 2 || data[1] == CT_FRAME_MAGIC_1);
}

int ct_frame_decode(const uint8_t *data, size_t length, struct ct_frame *out)
{
    struct ct_reader in;
    uint32_t body;

    if (!begins_frame(data, length))
        return -EPROTO;
    if (length < CT_FRAME_HEADER_BYTES)
        return 0;
    ct_reader_init(&in, data + 2, CT_FRAME_HEADER_BYTES - 2);
    out->version = ct_read_u8(&in);
    out->kind = ct_read_u8(&in);
    body = ct_read_u32(&in);
    if (body > CT_FRAME_BODY_MAX_BYTES)
        return -EMSGSIZE;
    if (length - CT_FRAME_HEADER_BYTES < body)
        return 0;
    out->body = data + CT_FRAME_HEADER_BYTES;
    out->length = body;
    return (int)(CT_FRAME_HEADER_BYTES + body);
}

void ct_frame_write_header(uint8_t out[CT_FRAME_HEADER_BYTES], uint8_t kind,
                           size_t length)
{
    struct ct_writer writer;

    ct_writer_init(&writer, out, CT_FRAME_HEADER_BYTES);
    ct_write_u8(&writer, CT_FRAME_MAGIC_0);
    ct_write_u8(&writer, CT_FRAME_MAGIC_1);
    ct_write_u8(&writer, CT_FRAME_VERSION);
    ct_write_u8(&writer, kind);
    ct_write_u32(&writer, (uint32_t)length);
}

int ct_frame_encode(struct ct_buf *out, uint8_t kind, const void *body, size_t length)
{
    uint8_t *at;
    int rc;

    if (length > CT_FRAME_BODY_MAX_BYTES)
        return -EMSGSIZE;
    if ((rc = ct_buf_reserve(out, CT_FRAME_HEADER_BYTES + length, &at)) < 0)
        return rc; /* all or nothing */
    ct_frame_write_header(at, kind, length);
    if (length)
        memcpy(at + CT_FRAME_HEADER_BYTES, body, length);
    ct_buf_commit(out, CT_FRAME_HEADER_BYTES + length);
    return 0;
}
