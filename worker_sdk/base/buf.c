/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

enum {
    BUF_MIN_BYTES = 256
}; /* the first allocation: most messages are smaller */

void ct_buf_init(struct ct_buf *buf, size_t max)
{
    *buf = (struct ct_buf){.max = max};
}

void ct_buf_deinit(struct ct_buf *buf)
{
    free(buf->data);
    *buf = (struct ct_buf){0};
}

/* At least doubles, so that many small appends cost little; the maximum bounds it. */
static int grow(struct ct_buf *buf, size_t need)
{
    size_t capacity = buf->capacity ? buf->capacity : BUF_MIN_BYTES / 2;
    uint8_t *data;

    capacity = capacity > buf->max / 2 ? buf->max : 2 * capacity;
    if (capacity < need)
        capacity = need;
    if (!(data = ct_realloc_array(buf->data, capacity, 1)))
        return -ENOMEM;
    buf->data = data;
    buf->capacity = capacity;
    return 0;
}

int ct_buf_reserve(struct ct_buf *buf, size_t length, uint8_t **at)
{
    size_t held = ct_buf_length(buf);
    int rc;

    if (length > buf->max || held > buf->max - length)
        return -ENOBUFS;
    if (buf->start && buf->capacity - buf->end < length) {
        memmove(buf->data, buf->data + buf->start, held);
        buf->start = 0;
        buf->end = held;
    }
    if (buf->capacity - buf->end < length && (rc = grow(buf, buf->end + length)) < 0)
        return rc;
    *at = buf->data + buf->end;
    return 0;
}

void ct_buf_commit(struct ct_buf *buf, size_t length)
{
    assert(length <= buf->capacity - buf->end);
    buf->end += length;
}

int ct_buf_append(struct ct_buf *buf, const void *data, size_t length)
{
    uint8_t *at;
    int rc;

    if (!length)
        return 0;
    if ((rc = ct_buf_reserve(buf, length, &at)) < 0)
        return rc;
    memcpy(at, data, length);
    ct_buf_commit(buf, length);
    return 0;
}

int ct_buf_printf(struct ct_buf *buf, const char *fmt, ...)
{
    va_list args;
    uint8_t *at;
    int length;
    int rc;

    va_start(args, fmt);
    length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (length < 0)
        return -EINVAL;
    if ((rc = ct_buf_reserve(buf, (size_t)length + 1, &at)) <
        0) /* NUL needs room too */
        return rc;
    va_start(args, fmt);
    (void)vsnprintf((char *)at, (size_t)length + 1, fmt, args);
    va_end(args);
    ct_buf_commit(buf, (size_t)length);
    return 0;
}

void ct_buf_consume(struct ct_buf *buf, size_t length)
{
    assert(length <= ct_buf_length(buf));
    buf->start += length;
    if (buf->start == buf->end)
        buf->start = buf->end = 0;
}
