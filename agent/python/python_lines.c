/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/python/python_lines.h"

enum {
    NO_LINE = -128,
    /* Kinds of entries of a location table. */
    LOCATION_ONE_LINE = 10, /* and the next two: as many lines further */
    LOCATION_NO_COLUMNS = 13,
    LOCATION_LONG = 14,
    LOCATION_NONE = 15
};

/* Pairs of increments: of the code offset in bytes, and of the line. */
static int find_in_lnotab(const uint8_t *table, size_t length, int64_t line, int64_t at)
{
    int64_t address = 0;

    for (size_t i = 0; i + 1 < length; i += 2) {
        address += table[i];
        if (address > at)
            break;
        line += (int8_t)table[i + 1];
    }
    return (int)line;
}

/* Pairs: an increment of the line, and the number of code bytes for which the line holds. */
static int find_in_linetable(const uint8_t *table, size_t length, int64_t line,
                             int64_t at)
{
    int64_t end = 0;

    for (size_t i = 0; i + 1 < length; i += 2) {
        const int8_t further = (int8_t)table[i + 1];

        if (further != NO_LINE)
            line += further;
        end += table[i];
        if (at < end)
            return further == NO_LINE ? 0 : (int)line;
    }
    return 0;
}

/* Six bits per byte, the lowest first; the lowest bit of all is the sign. */
static int64_t read_signed(const uint8_t *table, size_t length, size_t at)
{
    uint64_t value = 0;

    for (unsigned shift = 0; at < length && shift < 36; shift += 6) {
        value |= (uint64_t)(table[at] & 0x3f) << shift;
        if (!(table[at++] & 0x40))
            break;
    }
    return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

/* An entry begins with a byte whose highest bit is set: it has the kind, and the number of units of
 * two code bytes that the entry covers. */
static int find_in_locations(const uint8_t *table, size_t length, int64_t line,
                             int64_t at)
{
    int64_t end = 0;

    for (size_t i = 0; i < length;) {
        const int kind = table[i] >> 3 & 15;

        end += 2 * ((table[i] & 7) + 1);
        if (kind >= LOCATION_ONE_LINE && kind < LOCATION_NO_COLUMNS)
            line += kind - LOCATION_ONE_LINE;
        else if (kind == LOCATION_NO_COLUMNS || kind == LOCATION_LONG)
            line += read_signed(table, length, i + 1);
        if (at < end)
            return kind == LOCATION_NONE ? 0 : (int)line;
        for (i++; i < length && !(table[i] & 0x80);)
            i++;
    }
    return 0;
}

int python_lines_find(enum python_lines format, const uint8_t *table, size_t length,
                      int first, int64_t at)
{
    if (at < 0)
        return first;
    switch (format) {
    case PYTHON_LNOTAB: return find_in_lnotab(table, length, first, at);
    case PYTHON_LINETABLE: return find_in_linetable(table, length, first, at);
    case PYTHON_LOCATIONS: return find_in_locations(table, length, first, at);
    }
    return 0;
}
