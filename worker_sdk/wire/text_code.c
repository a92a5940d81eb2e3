/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/text_code.h"

#include <errno.h>
#include <limits.h>
#include <sodium.h>

enum {
    BASE64 = sodium_base64_VARIANT_ORIGINAL
};

void ct_hex_encode(char *dst, const void *data, size_t length)
{
    (void)sodium_bin2hex(dst, 2 * length + 1, data, length);
}

int ct_hex_decode(uint8_t *dst, const char *text, size_t length)
{
    size_t written;

    if (length % 2 != 0 ||
        sodium_hex2bin(dst, length / 2, text, length, NULL, &written, NULL) != 0)
        return -EBADMSG;
    return written == length / 2 ? 0 : -EBADMSG;
}

int ct_base64_encode(struct ct_buf *out, const void *data, size_t length)
{
    size_t room;
    uint8_t *at;
    int rc;

    if (length > INT_MAX / 2)
        return -ENOBUFS;
    room = sodium_base64_encoded_len(length, BASE64); /* with a NUL */
    if ((rc = ct_buf_reserve(out, room, &at)) < 0)
        return rc;
    (void)sodium_bin2base64((char *)at, room, data, length, BASE64);
    ct_buf_commit(out, room - 1);
    return 0;
}

int ct_base64_decode(void *dst, size_t size, const char *text, size_t length)
{
    size_t written;

    if (size > INT_MAX ||
        sodium_base642bin(dst, size, text, length, NULL, &written, NULL, BASE64) != 0)
        return -EBADMSG;
    return (int)written;
}
