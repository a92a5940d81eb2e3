/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tables (message_table.c) and the codec (message.c): a message is a list of fields
 * in wire order, used for both encoding and decoding. Text is u32 length and bytes, a list is a u8
 * count and its elements, numbers are little-endian. */
#pragma once

#include "worker_sdk/wire/message.h"

enum field_type {
    FIELD_U8,
    FIELD_U16,
    FIELD_U32,   /* and int32_t, as two's complement */
    FIELD_U64,   /* and int64_t */
    FIELD_STR,   /* char[size]: one plain line */
    FIELD_TEXT,  /* char[size]: plain lines */
    FIELD_NAME,  /* char[size]: any bytes but NUL */
    FIELD_FACTS, /* struct ct_facts: u8 count; each a u8 key and one plain line */
    FIELD_BYTES, /* uint8_t[size], all of them, no length on the wire */
    FIELD_STRUCT,
    FIELD_COUNT, /* u8; the next field is the list that it counts */
    /* As COUNT, for a list that ends the message, and is left out when empty: messages without one
     * are as they were before this list existed. */
    FIELD_TAIL,
    FIELD_LIST, /* `max` elements of `size` bytes, as many as the count before says */
    /* One more number of each of those elements (max 1: of the message itself), at the end of the
     * message; all are left out when all are 0, as with TAIL. */
    FIELD_TAIL_U64,
};

struct field {
    enum field_type type;
    size_t offset;
    size_t size;                 /* of the member; of one element in a list */
    uint8_t max;                 /* elements of a list */
    const struct field *element; /* FIELD_STRUCT, FIELD_LIST: its fields */
    size_t element_fields;
};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct layout {
    const char *name;
    size_t size; /* of the struct */
    const struct field *fields;
    size_t field_count;
};

/* By kind; an entry without a name: no such kind. */
extern const struct layout ct_message_layouts[UINT8_MAX + 1];
