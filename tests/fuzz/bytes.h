/* SPDX-License-Identifier: Apache-2.0 */
/* The input of a fuzzer, as a file or memory that is read in pieces. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bytes {
    const uint8_t *data;
    size_t size;
};

static inline bool bytes_read(void *context, uint64_t offset, void *dst, size_t length)
{
    const struct bytes *bytes = context;

    if (offset > bytes->size || length > bytes->size - offset)
        return false;
    memcpy(dst, bytes->data + offset, length);
    return true;
}
