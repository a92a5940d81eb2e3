/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/base64.h"

#include <errno.h>
#include <limits.h>

static const char alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_encode(struct ct_buf *out, const void *data, size_t length)
{
    const uint8_t *bytes = data;
    uint8_t *at;
    int rc;

    if (length > INT_MAX / 2)
        return -ENOBUFS;
    if ((rc = ct_buf_reserve(out, (length + 2) / 3 * 4, &at)) < 0)
        return rc;
    for (size_t i = 0; i < length; i += 3) {
        const size_t left = length - i;
        const unsigned group = (unsigned)bytes[i] << 16 |
                               (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) |
                               (left > 2 ? bytes[i + 2] : 0u);

        *at++ = (uint8_t)alphabet[group >> 18];
        *at++ = (uint8_t)alphabet[group >> 12 & 63];
        *at++ = (uint8_t)(left > 1 ? alphabet[group >> 6 & 63] : '=');
        *at++ = (uint8_t)(left > 2 ? alphabet[group & 63] : '=');
    }
    ct_buf_commit(out, (length + 2) / 3 * 4);
    return 0;
}

int base64_decoded_length(const char *text, size_t length)
{
    if (length % 4 != 0 || length > INT_MAX)
        return -EBADMSG;
    if (length == 0)
        return 0;
    return (int)(length / 4 * 3) - (text[length - 1] == '=') -
           (text[length - 2] == '=');
}

static int value_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int base64_decode(uint8_t *dst, const char *text, size_t length)
{
    const int total = base64_decoded_length(text, length);
    size_t left = total > 0 ? (size_t)total : 0;

    if (total < 0)
        return -EBADMSG;
    for (size_t i = 0; i < length; i += 4) {
        const size_t bytes = left < 3 ? left : 3;
        unsigned group = 0;

        for (size_t k = 0; k < 4; k++) {
            const int value = value_of(text[i + k]);

            if (value < 0 && (k <= bytes || text[i + k] != '='))
                return -EBADMSG;
            group = group << 6 | (unsigned)(value < 0 ? 0 : value);
        }
        for (size_t k = 0; k < bytes; k++)
            *dst++ = (uint8_t)(group >> (16 - 8 * k));
        left -= bytes;
    }
    return 0;
}
