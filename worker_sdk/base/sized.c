/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/sized.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"

static int read_size(size_t *out, const void *from, const char *what,
                     struct ctrun_error *err)
{
    if (!from)
        return ct_fail(err, -EINVAL, "the struct is NULL: pass one that begins with %s",
                       what);
    memcpy(out, from, sizeof *out);
    if (*out > sizeof *out && *out <= CT_SIZED_MAX_BYTES)
        return 0;
    return ct_fail(err, -EINVAL,
                   "the first member of the struct is %zu: initialize it with %s", *out,
                   what);
}

/* Copies all except the size at the beginning. */
static void copy_members(void *dst, const void *src, size_t bytes)
{
    memcpy((char *)dst + sizeof bytes, (const char *)src + sizeof bytes,
           bytes - sizeof bytes);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

int ct_sized_read(void *dst, size_t dst_size, const void *src, const char *what,
                  struct ctrun_error *err)
{
    size_t size = 0;
    int rc = read_size(&size, src, what, err);

    if (rc == 0)
        copy_members(dst, src, smaller(size, dst_size));
    return rc;
}

int ct_sized_read_array(void **out, const void *defaults, size_t size, const void *src,
                        size_t count, const char *what, struct ctrun_error *err)
{
    size_t stride = 0;
    char *list;
    int rc;

    *out = NULL;
    if (count == 0)
        return 0;
    if ((rc = read_size(&stride, src, what, err)) < 0)
        return rc;
    if (!(list = ct_zalloc_array(count, size)))
        return ct_fail(err, -ENOMEM, "out of memory for %zu entries", count);
    for (size_t i = 0; i < count; i++) {
        const char *from = (const char *)src + i * stride;
        size_t own;
        memcpy(&own, from, sizeof own);
        if (own != stride) {
            free(list);
            return ct_fail(
                err, -EINVAL,
                "the first member of entry %zu is %zu: initialize it with %s", i, own,
                what);
        }
        memcpy(list + i * size, defaults, size);
        copy_members(list + i * size, from, smaller(stride, size));
    }
    *out = list;
    return 0;
}

int ct_sized_write(void *dst, const void *src, size_t src_size, const char *what,
                   struct ctrun_error *err)
{
    size_t size = 0;
    int rc = read_size(&size, dst, what, err);

    if (rc == 0)
        copy_members(dst, src, smaller(size, src_size));
    return rc;
}
