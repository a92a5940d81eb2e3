/* SPDX-License-Identifier: Apache-2.0 */
/* A '\r' ends a piece only when the next byte is known and is no '\n': "\r\n" is one end. */
#include "agent/output/lines.h"

#include <string.h>

enum {
    SEARCH_BYTES = 256,
    LINE_SHOWN_MAX = 300
};

/* Where to cut `max` bytes so that no UTF-8 character is torn: bytes 10xxxxxx continue one. */
static size_t cut_at(const char *data, size_t max)
{
    size_t at = max;

    for (int back = 0; back < 3 && at > 1; back++) {
        if (((unsigned char)data[at] & 0xC0) != 0x80)
            return at;
        at--;
    }
    return ((unsigned char)data[at] & 0xC0) != 0x80 ? at : max; /* else not UTF-8 */
}

/* Index of the first '\n' or '\r'; `length`: there is none. Step by step: else each of many short
 * pieces with one of them would cost a search for the other one through all that follows. */
static size_t find_end(const char *data, size_t length)
{
    size_t part;

    for (size_t at = 0; at < length; at += part) {
        const char *feed, *bar;

        part = length - at < SEARCH_BYTES ? length - at : SEARCH_BYTES;
        feed = memchr(data + at, '\n', part);
        bar = memchr(data + at, '\r', feed ? (size_t)(feed - data) - at : part);
        if (bar || feed)
            return (size_t)((bar ? bar : feed) - data);
    }
    return length;
}

size_t lines_first(const char *data, size_t length, size_t max)
{
    const size_t limit = length < max ? length : max;
    const size_t at = find_end(data, limit);

    if (at < limit && data[at] == '\n')
        return at + 1;
    if (at < limit) {
        if (at + 1 < length)
            return data[at + 1] == '\n' ? at + 2 : at + 1;
        return length < max ? 0 : at + 1; /* 0: the next byte decides */
    }
    if (length > max)
        return cut_at(data, max);
    return length == max ? max : 0;
}

bool lines_have_end(const char *data, size_t length)
{
    return find_end(data, length) < length;
}

size_t lines_whole(const char *data, size_t length, size_t max)
{
    const size_t limit = length < max ? length : max;
    const char *last = memrchr(data, '\n', limit);

    if (!last && limit > 0) /* the byte behind a bar's end must be known */
        last = memrchr(data, '\r', limit - 1);
    return last ? (size_t)(last - data) + 1 : lines_first(data, length, max);
}

size_t lines_begun(const char *data, size_t length)
{
    for (size_t back = 1; back <= 3 && back <= length; back++) {
        const unsigned char c = (unsigned char)data[length - back];

        if (c >= 0xC0 && c < 0xF8) /* begins a character of 2, 3 or 4 bytes */
            return back < (c >= 0xF0   ? 4u
                           : c >= 0xE0 ? 3u
                                       : 2u)
                       ? length - back
                       : length;
        if (c < 0x80)
            break;
    }
    return length;
}

bool lines_match(const char *piece, size_t length, const char *const *texts)
{
    for (; texts && *texts; texts++)
        if (memmem(piece, length, *texts, strlen(*texts)))
            return true;
    return false;
}

static bool is_blank(const char *data, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (data[i] != ' ' && data[i] != '\t' && data[i] != '\r')
            return false;
    return true;
}

size_t lines_last(const char *data, size_t length, int count, char *dst, size_t size)
{
    size_t used = size - 1; /* filled from the end */
    size_t end = length;

    dst[used] = '\0';
    while (end > 0 && count > 0) {
        const char *feed = memrchr(data, '\n', end);
        size_t start = feed ? (size_t)(feed - data) + 1 : 0;
        size_t stop = end > start && data[end - 1] == '\r' ? end - 1 : end;
        const char *bar = memrchr(data + start, '\r', stop - start);
        const char *from = bar ? bar + 1 : data + start;
        size_t n = (size_t)(data + stop - from);

        end = feed ? start - 1 : 0;
        if (is_blank(from, n))
            continue;
        if (n > LINE_SHOWN_MAX && used < size - 1) /* the last one says most */
            n = cut_at(from, LINE_SHOWN_MAX);
        if (used < size - 1 && n + 1 > used)
            break;
        if (n > used) { /* the last line alone is too long */
            n = cut_at(from, used);
            count = 1;
        }
        if (used < size - 1)
            dst[--used] = '\n';
        used -= n;
        memcpy(dst + used, from, n);
        count--;
    }
    memmove(dst, dst + used, size - used);
    return size - 1 - used;
}
