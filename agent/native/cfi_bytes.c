/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/native/cfi_bytes.h"

enum {
    FORMAT_MASK = 0x0f,
    RELATION_MASK = 0xf0,
    RELATIVE_TO_ITSELF = 0x10
};

uint64_t cfi_bytes_take(struct cfi_bytes *in, size_t size)
{
    uint64_t value = 0;

    if (in->is_bad || (size_t)(in->end - in->at) < size) {
        in->is_bad = true;
        return 0;
    }
    for (size_t i = 0; i < size; i++)
        value |= (uint64_t)in->at[i] << 8 * i;
    in->at += size;
    return value;
}

int64_t cfi_bytes_take_signed(struct cfi_bytes *in, size_t size)
{
    const unsigned unused = 64 - 8 * (unsigned)size;

    return (int64_t)(cfi_bytes_take(in, size) << unused) >> unused;
}

/* *shift: how many bits the value has. */
static uint64_t take_leb(struct cfi_bytes *in, unsigned *shift, uint8_t *last)
{
    uint64_t value = 0;

    *shift = 0;
    do {
        *last = (uint8_t)cfi_bytes_take(in, 1);
        if (*shift < 64)
            value |= (uint64_t)(*last & 0x7f) << *shift;
        *shift += 7;
    } while (*last & 0x80 && !in->is_bad);
    return value;
}

uint64_t cfi_bytes_take_uleb(struct cfi_bytes *in)
{
    unsigned shift;
    uint8_t last;

    return take_leb(in, &shift, &last);
}

int64_t cfi_bytes_take_sleb(struct cfi_bytes *in)
{
    unsigned shift;
    uint8_t last;
    uint64_t value = take_leb(in, &shift, &last);

    if (last & 0x40 && shift < 64)
        value |= UINT64_MAX << shift;
    return (int64_t)value;
}

struct cfi_bytes cfi_bytes_take_part(struct cfi_bytes *in, uint64_t length)
{
    struct cfi_bytes part = {.at = in->at, .end = in->at};

    if (in->is_bad || (uint64_t)(in->end - in->at) < length) {
        in->is_bad = part.is_bad = true;
        return part;
    }
    part.end += length;
    in->at += length;
    return part;
}

static uint64_t take_format(struct cfi_bytes *in, uint8_t encoding)
{
    switch (encoding & FORMAT_MASK) {
    case 0x00: /* an address */
    case 0x04:
    case 0x0c: return cfi_bytes_take(in, 8);
    case 0x02: return cfi_bytes_take(in, 2);
    case 0x03: return cfi_bytes_take(in, 4);
    case 0x0a: return (uint64_t)cfi_bytes_take_signed(in, 2);
    case 0x0b: return (uint64_t)cfi_bytes_take_signed(in, 4);
    default: in->is_bad = true; return 0;
    }
}

uint64_t cfi_bytes_take_pointer(struct cfi_bytes *in, uint8_t encoding,
                                uint64_t address)
{
    const uint8_t relation = encoding & RELATION_MASK;
    const uint64_t value = take_format(in, encoding);

    if (relation != 0 && relation != RELATIVE_TO_ITSELF)
        in->is_bad = true;
    return relation == RELATIVE_TO_ITSELF ? address + value : value;
}
