/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as text: hexadecimal digits, and base64 (RFC 4648, with padding), by libsodium.
 *
 * Not part of libctrun: see auth.h. Pure. */
#pragma once

#include "worker_sdk/base/buf.h"

/* Terminated, into dst[2 * length + 1]. */
void ct_hex_encode(char *dst, const void *data, size_t length);
/* text[length] into dst[length / 2]. 0 or -EBADMSG. */
int ct_hex_decode(uint8_t *dst, const char *text, size_t length);

/* Appends the text of `length` bytes. 0, -ENOBUFS, -ENOMEM. */
int ct_base64_encode(struct ct_buf *out, const void *data, size_t length);
/* text[length] into dst[size]. The number of bytes; -EBADMSG: no base64, or more than size. */
int ct_base64_decode(void *dst, size_t size, const char *text, size_t length);
