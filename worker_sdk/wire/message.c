/* SPDX-License-Identifier: Apache-2.0 */
/* The codec of message.h, driven by the tables of message_table.c. */
#include <errno.h>
#include <string.h>

#include "worker_sdk/base/bytes.h"
#include "worker_sdk/wire/message_private.h"

static const struct layout *find_layout(int kind)
{
    return kind >= 0 && kind <= UINT8_MAX && ct_message_layouts[kind].name
               ? &ct_message_layouts[kind]
               : NULL;
}

/* ---- Encode ------------------------------------------------------------------------------ */

/* Marks the message as invalid: more room would not help. */
static void refuse(struct ct_writer *out)
{
    out->bad = true;
    out->size = 0;
}

static void encode_number(struct ct_writer *out, enum field_type type, const void *at)
{
    union {
        uint16_t u16;
        uint32_t u32;
        uint64_t u64;
    } value;

    if (type == FIELD_U16) {
        memcpy(&value.u16, at, sizeof value.u16);
        ct_write_u16(out, value.u16);
    } else if (type == FIELD_U32) {
        memcpy(&value.u32, at, sizeof value.u32);
        ct_write_u32(out, value.u32);
    } else {
        memcpy(&value.u64, at, sizeof value.u64);
        ct_write_u64(out, value.u64);
    }
}

static void encode_facts(struct ct_writer *out, const struct ct_facts *facts)
{
    if (facts->count > CT_FACTS_COUNT_MAX)
        refuse(out);
    ct_write_u8(out, facts->count);
    for (int i = 0; i < facts->count && !out->bad; i++) {
        ct_write_u8(out, facts->list[i].key);
        ct_write_str(out, ct_facts_text(facts, i));
    }
}

static void encode_tail(struct ct_writer *out, const struct field *field,
                        const uint8_t *first, uint8_t count)
{
    uint64_t any = 0, value;

    for (size_t i = 0; i < count; i++) {
        memcpy(&value, first + i * field->size, sizeof value);
        any |= value;
    }
    for (size_t i = 0; i < count && any != 0; i++)
        encode_number(out, FIELD_U64, first + i * field->size);
}

static void encode_fields(struct ct_writer *out, const struct field *fields, size_t n,
                          const void *object)
{
    uint8_t count = 0;

    for (const struct field *field = fields; field < fields + n; field++) {
        const uint8_t *at = (const uint8_t *)object + field->offset;

        switch (field->type) {
        case FIELD_U8: ct_write_u8(out, *at); break;
        case FIELD_U16:
        case FIELD_U32:
        case FIELD_U64: encode_number(out, field->type, at); break;
        case FIELD_STR:
        case FIELD_TEXT:
        case FIELD_NAME: ct_write_str(out, (const char *)at); break;
        case FIELD_BYTES: ct_write_raw(out, at, field->size); break;
        case FIELD_FACTS: encode_facts(out, (const struct ct_facts *)at); break;
        case FIELD_STRUCT:
            encode_fields(out, field->element, field->element_fields, at);
            break;
        case FIELD_TAIL:
        case FIELD_COUNT:
            count = *at;
            if (count == 0 && field->type == FIELD_TAIL)
                return;
            if (count > field->max)
                refuse(out);
            ct_write_u8(out, count);
            break;
        case FIELD_LIST:
            for (size_t i = 0; i < count && !out->bad; i++)
                encode_fields(out, field->element, field->element_fields,
                              at + i * field->size);
            break;
        case FIELD_TAIL_U64:
            if (!out->bad)
                encode_tail(out, field, at, field->max == 1 ? 1 : count);
            break;
        }
    }
}

/* Encodes directly into `out`, with space for a body of `room` bytes. -EMSGSIZE: the body is
 * longer. */
static int encode_within(struct ct_buf *out, const struct layout *layout,
                         const struct ct_message *message, size_t room)
{
    const size_t left = out->max - ct_buf_length(out);
    const bool is_cut = left < CT_FRAME_HEADER_BYTES + room;
    struct ct_writer writer;
    uint8_t *at;
    int rc;

    if (left < CT_FRAME_HEADER_BYTES)
        return -ENOBUFS;
    if (is_cut)
        room = left - CT_FRAME_HEADER_BYTES;
    if ((rc = ct_buf_reserve(out, CT_FRAME_HEADER_BYTES + room, &at)) < 0)
        return rc;
    ct_writer_init(&writer, at + CT_FRAME_HEADER_BYTES, room);
    encode_fields(&writer, layout->fields, layout->field_count, message->body);
    if ((rc = ct_write_end(&writer)) < 0)
        return is_cut && writer.size > 0 ? -ENOBUFS : rc;
    ct_frame_write_header(at, (uint8_t)message->kind, (size_t)rc);
    ct_buf_commit(out, CT_FRAME_HEADER_BYTES + (size_t)rc);
    return 0;
}

int ct_message_encode(struct ct_buf *out, const struct ct_message *message)
{
    static const size_t rooms[] = {256, 4096, CT_FRAME_BODY_MAX_BYTES};
    const struct layout *layout = find_layout((int)message->kind);
    int rc = -EMSGSIZE;

    if (!layout || !message->body)
        return -EINVAL;
    for (size_t i = 0; i < COUNT_OF(rooms) && rc == -EMSGSIZE; i++)
        rc = encode_within(out, layout, message, rooms[i]);
    return rc;
}

/* ---- Decode ------------------------------------------------------------------------------ */

static void decode_number(struct ct_reader *in, enum field_type type, void *at)
{
    if (type == FIELD_U16) {
        uint16_t value = ct_read_u16(in);

        memcpy(at, &value, sizeof value);
    } else if (type == FIELD_U32) {
        uint32_t value = ct_read_u32(in);

        memcpy(at, &value, sizeof value);
    } else {
        uint64_t value = ct_read_u64(in);

        memcpy(at, &value, sizeof value);
    }
}

static void decode_bytes(struct ct_reader *in, uint8_t *at, size_t size)
{
    const uint8_t *bytes = ct_read_raw(in, size);

    if (bytes) /* NULL: the reader is invalid */
        memcpy(at, bytes, size);
}

static void decode_facts(struct ct_reader *in, struct ct_facts *facts)
{
    char text[CT_FACTS_MAX];

    for (uint8_t left = ct_read_u8(in); left > 0 && !in->bad; left--) {
        const uint8_t key = ct_read_u8(in);

        ct_read_str(in, text, sizeof text);
        if (!in->bad && !ct_facts_add(facts, key, text))
            in->bad = true;
    }
}

static void decode_tail(struct ct_reader *in, const struct field *field, uint8_t *first,
                        uint8_t count)
{
    uint64_t any = 0;

    if (in->left == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        const uint64_t value = ct_read_u64(in);

        memcpy(first + i * field->size, &value, sizeof value);
        any |= value;
    }
    if (any == 0)
        in->bad = true; /* it would have been left out */
}

static void decode_fields(struct ct_reader *in, const struct field *fields, size_t n,
                          void *object)
{
    uint8_t count = 0;

    for (const struct field *field = fields; field < fields + n; field++) {
        uint8_t *at = (uint8_t *)object + field->offset;

        switch (field->type) {
        case FIELD_U8: *at = ct_read_u8(in); break;
        case FIELD_U16:
        case FIELD_U32:
        case FIELD_U64: decode_number(in, field->type, at); break;
        case FIELD_STR: ct_read_str(in, (char *)at, field->size); break;
        case FIELD_TEXT: ct_read_text(in, (char *)at, field->size); break;
        case FIELD_NAME: ct_read_name(in, (char *)at, field->size); break;
        case FIELD_BYTES: decode_bytes(in, at, field->size); break;
        case FIELD_FACTS: decode_facts(in, (struct ct_facts *)at); break;
        case FIELD_STRUCT:
            decode_fields(in, field->element, field->element_fields, at);
            break;
        case FIELD_TAIL:
        case FIELD_COUNT:
            if (in->left == 0 && field->type == FIELD_TAIL)
                return;
            count = ct_read_u8(in);
            if (count > field->max || (count == 0 && field->type == FIELD_TAIL)) {
                in->bad = true;
                count = 0;
            }
            *at = count;
            break;
        case FIELD_LIST:
            for (size_t i = 0; i < count; i++)
                decode_fields(in, field->element, field->element_fields,
                              at + i * field->size);
            break;
        case FIELD_TAIL_U64:
            decode_tail(in, field, at, field->max == 1 ? 1 : count);
            break;
        }
    }
}

int ct_message_decode(const struct ct_frame *frame, struct ct_message *out, void *room,
                      size_t size)
{
    const struct layout *layout = find_layout(frame->kind);
    struct ct_reader in;

    if (frame->kind >= CT_MESSAGE_RETIRED_FIRST &&
        frame->kind <= CT_MESSAGE_RETIRED_LAST)
        return -EBADMSG;
    if (!layout)
        return -ENOSYS;
    if (layout->size > size)
        return -EBADMSG;
    *out = (struct ct_message){(enum ct_message_kind)frame->kind,
                               .body = memset(room, 0, layout->size)};
    ct_reader_init(&in, frame->body, frame->length);
    decode_fields(&in, layout->fields, layout->field_count, room);
    return ct_read_end(&in);
}

/* ---- Names ------------------------------------------------------------------------------- */

const char *ct_message_name(int kind)
{
    const struct layout *layout = find_layout(kind);

    return layout ? layout->name : "UNKNOWN";
}

const char *ct_cause_name(int cause)
{
    static const char *const names[] = {
        [CT_CAUSE_NONE] = "none",
        [CT_CAUSE_EXIT] = "exit",
        [CT_CAUSE_SIGNAL] = "signal",
        [CT_CAUSE_OOM] = "oom",
        [CT_CAUSE_EXEC] = "exec",
        [CT_CAUSE_STOPPED] = "stopped",
        [CT_CAUSE_NODE_LOST] = "node_lost",
        [CT_CAUSE_UNKILLABLE] = "unkillable",
        [CT_CAUSE_JOIN_TIMEOUT] = "join_timeout",
        [CT_CAUSE_AGENT] = "agent",
        [CT_CAUSE_HANG] = "hang",
        [CT_CAUSE_EARLY] = "early",
        [CT_CAUSE_UNREACHABLE] = "unreachable",
        [CT_CAUSE_RAISED] = "raised",
        [CT_CAUSE_ENDED] = "ended",
    };

    if (cause < 0 || (size_t)cause >= COUNT_OF(names))
        return "unknown";
    return names[cause];
}

/* Its report may come before that of the worker it lost: the agent of that worker has not seen the
 * end of the process yet, or that node is silent and must time out first. */
bool ct_failure_is_victim(const struct ct_failure *failure)
{
    return (failure->cause == CT_CAUSE_EXIT || failure->cause == CT_CAUSE_RAISED ||
            failure->cause == CT_CAUSE_SIGNAL) &&
           failure->error == CTRUN_E_PEER_LOST &&
           !ct_facts_find(&failure->facts, CT_FACT_HARDWARE);
}
