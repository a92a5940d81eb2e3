/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/ssh/ssh_message.h"

#include <errno.h>

#include "worker_sdk/base/bytes.h"

enum {
    HEAD_BYTES = 4 + 4 + 4
};

static bool is_kind(int kind)
{
    return (kind >= SSH_JOB && kind <= SSH_PIECE) ||
           (kind >= SSH_READY && kind <= SSH_SAVING);
}

int ssh_message_encode(struct ct_buf *out, const struct ssh_message *message)
{
    uint8_t body[HEAD_BYTES + SSH_DATA_MAX_BYTES];
    struct ct_writer writer;

    if (message->length > SSH_DATA_MAX_BYTES)
        return -EMSGSIZE;
    ct_writer_init(&writer, body, sizeof body);
    ct_write_u32(&writer, message->host);
    ct_write_u32(&writer, (uint32_t)message->code);
    ct_write_blob(&writer, message->data, message->length);
    return ct_frame_encode(out, (uint8_t)message->kind, body, writer.length);
}

int ssh_message_decode(const struct ct_frame *frame, struct ssh_message *out)
{
    struct ct_reader reader;

    if (frame->version != CT_FRAME_VERSION || !is_kind(frame->kind))
        return -EBADMSG;
    ct_reader_init(&reader, frame->body, frame->length);
    out->kind = (enum ssh_kind)frame->kind;
    out->host = ct_read_u32(&reader);
    out->code = (int32_t)ct_read_u32(&reader);
    out->data = ct_read_blob(&reader, SSH_DATA_MAX_BYTES, &out->length);
    return ct_read_end(&reader);
}
