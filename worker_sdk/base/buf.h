/* SPDX-License-Identifier: Apache-2.0 */
/* A byte queue that grows up to a maximum set by ct_buf_init(): append at the end, consume at the
 * front.
 *
 * A zeroed buf is valid and empty but has maximum 0; ct_buf_init() gives it one. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct ct_buf {
    uint8_t *data;   /* owned */
    size_t start;    /* first byte not consumed */
    size_t end;      /* one after the last byte */
    size_t capacity; /* allocated */
    size_t max;      /* never more bytes than this are held */
};

void ct_buf_init(struct ct_buf *buf, size_t max);
void ct_buf_deinit(struct ct_buf *buf);
/* The bytes held, borrowed until the next call that changes buf. */
static inline const uint8_t *ct_buf_data(const struct ct_buf *buf)
{
    return buf->data ? buf->data + buf->start : (const uint8_t *)"";
}
static inline size_t ct_buf_length(const struct ct_buf *buf)
{
    return buf->end - buf->start;
}
/* Reserves room for `length` more bytes; write them to *at, then ct_buf_commit() appends them. 0,
 * -ENOBUFS above the maximum, -ENOMEM. */
int ct_buf_reserve(struct ct_buf *buf, size_t length, uint8_t **at);
void ct_buf_commit(struct ct_buf *buf, size_t length);
int ct_buf_append(struct ct_buf *buf, const void *data, size_t length);
/* printf at the end, without the terminating NUL. */
__attribute__((format(printf, 2, 3))) int ct_buf_printf(struct ct_buf *buf,
                                                        const char *fmt, ...);
void ct_buf_consume(struct ct_buf *buf, size_t length);
