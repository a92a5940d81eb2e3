/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/bytes.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "worker_sdk/base/plain.h"

void ct_reader_init(struct ct_reader *in, const void *data, size_t length)
{
    *in = (struct ct_reader){.next = data, .left = length};
}

const uint8_t *ct_read_raw(struct ct_reader *in, size_t length)
{
    const uint8_t *at = in->next;

    if (in->bad || length > in->left) {
        in->bad = true;
        return NULL;
    }
    in->next += length;
    in->left -= length;
    return at;
}

/* `size` bytes as a little-endian number; 0 when the reader is bad. */
static uint64_t read_number(struct ct_reader *in, size_t size)
{
    const uint8_t *at = ct_read_raw(in, size);
    uint64_t value = 0;

    if (at)
        memcpy(&value, at, size);
    return le64toh(value);
}

uint8_t ct_read_u8(struct ct_reader *in)
{
    return (uint8_t)read_number(in, 1);
}

uint16_t ct_read_u16(struct ct_reader *in)
{
    return (uint16_t)read_number(in, 2);
}

uint32_t ct_read_u32(struct ct_reader *in)
{
    return (uint32_t)read_number(in, 4);
}

uint64_t ct_read_u64(struct ct_reader *in)
{
    return read_number(in, 8);
}

int64_t ct_read_i64(struct ct_reader *in)
{
    return (int64_t)read_number(in, 8);
}

const uint8_t *ct_read_blob(struct ct_reader *in, size_t max, size_t *length)
{
    *length = ct_read_u32(in);
    if (*length > max)
        in->bad = true;
    if (in->bad)
        *length = 0;
    return ct_read_raw(in, *length);
}

void ct_read_name(struct ct_reader *in, char *dst, size_t size)
{
    size_t length;
    const uint8_t *text = ct_read_blob(in, size - 1, &length);

    if (!text || memchr(text, 0, length)) {
        in->bad = true;
        length = 0;
    }
    if (length)
        memcpy(dst, text, length);
    dst[length] = '\0';
}

void ct_read_str(struct ct_reader *in, char *dst, size_t size)
{
    ct_read_name(in, dst, size);
    ct_make_plain(dst, false);
}

void ct_read_text(struct ct_reader *in, char *dst, size_t size)
{
    ct_read_name(in, dst, size);
    ct_make_plain(dst, true);
}

int ct_read_end(const struct ct_reader *in)
{
    return in->bad || in->left ? -EBADMSG : 0;
}

void ct_writer_init(struct ct_writer *out, void *data, size_t size)
{
    *out = (struct ct_writer){.data = data, .size = size};
}

void ct_write_raw(struct ct_writer *out, const void *data, size_t length)
{
    if (out->bad || length > out->size - out->length) {
        out->bad = true;
        return;
    }
    if (length)
        memcpy(out->data + out->length, data, length);
    out->length += length;
}

static void write_number(struct ct_writer *out, uint64_t value, size_t size)
{
    const uint64_t bytes = htole64(value);

    ct_write_raw(out, &bytes, size);
}

void ct_write_u8(struct ct_writer *out, uint8_t value)
{
    write_number(out, value, 1);
}

void ct_write_u16(struct ct_writer *out, uint16_t value)
{
    write_number(out, value, 2);
}

void ct_write_u32(struct ct_writer *out, uint32_t value)
{
    write_number(out, value, 4);
}

void ct_write_u64(struct ct_writer *out, uint64_t value)
{
    write_number(out, value, 8);
}

void ct_write_i64(struct ct_writer *out, int64_t value)
{
    write_number(out, (uint64_t)value, 8);
}

void ct_write_blob(struct ct_writer *out, const void *data, size_t length)
{
    if (length > UINT32_MAX) {
        out->bad = true;
        return;
    }
    ct_write_u32(out, (uint32_t)length);
    ct_write_raw(out, data, length);
}

void ct_write_str(struct ct_writer *out, const char *text)
{
    ct_write_blob(out, text, strlen(text));
}

void ct_write_text(struct ct_writer *out, const char *text)
{
    ct_write_raw(out, text, strlen(text));
}

int ct_write_end(const struct ct_writer *out)
{
    return out->bad || out->length > INT_MAX ? -EMSGSIZE : (int)out->length;
}
