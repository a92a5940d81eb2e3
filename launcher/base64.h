/* SPDX-License-Identifier: Apache-2.0 */
/* Base64 as etcd's JSON gateway wants it: the standard alphabet, with padding. Pure. */
#ifndef LAUNCHER_BASE64_H
#define LAUNCHER_BASE64_H

#include "worker_sdk/base/buf.h"

/* Appends the text of `length` bytes. 0, -ENOBUFS, -ENOMEM. */
int base64_encode(struct ct_buf *out, const void *data, size_t length);
/* The number of bytes that text[length] holds, or -EBADMSG: no base64. At most 2^31 - 1. */
int base64_decoded_length(const char *text, size_t length);
/* Decodes into dst, which has room for base64_decoded_length() bytes. 0 or -EBADMSG. */
int base64_decode(uint8_t *dst, const char *text, size_t length);

#endif
