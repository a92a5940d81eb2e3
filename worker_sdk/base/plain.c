/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/plain.h"

#include <string.h>

/* Length in bytes of a character that begins with this byte; 0: no character does. */
static size_t length_of(uint8_t first)
{
    if (first < 0x80)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        return 2;
    if (first >= 0xe0 && first <= 0xef)
        return 3;
    return first >= 0xf0 && first <= 0xf4 ? 4 : 0;
}

/* The NUL at the end of the text is no continuation byte, so nothing after it is read. */
uint32_t ct_utf8_decode(const uint8_t *at, size_t *length)
{
    static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t c;

    *length = length_of(*at);
    if (*length < 2)
        return *length ? *at : UINT32_MAX;
    c = *at & (0x7fU >> *length);
    for (size_t i = 1; i < *length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return UINT32_MAX;
        c = c << 6 | (at[i] & 0x3fU);
    }
    return c < smallest[*length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)
               ? UINT32_MAX
               : c;
}

bool ct_is_utf8(const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    size_t length;

    for (; *at; at += length)
        if (ct_utf8_decode(at, &length) == UINT32_MAX)
            return false;
    return true;
}

static bool is_plain(uint32_t c, bool keeps_lines)
{
    if (c == '\n' || c == '\t')
        return keeps_lines;
    if (c < 0x20 || (c >= 0x7f && c <= 0x9f)) /* C0, DEL, C1 */
        return false;
    /* line separators, embeddings, overrides, isolates */
    return c < 0x2028 || c > 0x2069 || (c > 0x202e && c < 0x2066);
}

void ct_make_plain(char *text, bool keeps_lines)
{
    for (uint8_t *at = (uint8_t *)text; *at;) {
        size_t length;
        uint32_t c;

        if (*at >= 0x20 && *at < 0x7f) {
            at++;
            continue; /* true of nearly all characters */
        }
        c = ct_utf8_decode(at, &length);
        if (c == UINT32_MAX)
            length = 1;
        if (c == UINT32_MAX || !is_plain(c, keeps_lines))
            memset(at, '?', length);
        at += length;
    }
}
