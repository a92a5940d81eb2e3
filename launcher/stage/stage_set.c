/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stage/stage_set.h"

#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"

enum {
    WORD_BITS = 64,
    RUN_BYTES = 8
};

int stage_set_init(struct stage_set *set, uint32_t size)
{
    *set = (struct stage_set){0};
    set->bits = ct_zalloc_array((size_t)size / WORD_BITS + 1, sizeof *set->bits);
    if (!set->bits)
        return -ENOMEM;
    set->size = size;
    return 0;
}

void stage_set_deinit(struct stage_set *set)
{
    free(set->bits);
    *set = (struct stage_set){0};
}

static uint64_t bit_of(uint32_t chunk)
{
    return UINT64_C(1) << chunk % WORD_BITS;
}

bool stage_set_has(const struct stage_set *set, uint32_t chunk)
{
    return chunk < set->size && (set->bits[chunk / WORD_BITS] & bit_of(chunk)) != 0;
}

void stage_set_add(struct stage_set *set, uint32_t chunk)
{
    if (chunk >= set->size || stage_set_has(set, chunk))
        return;
    set->bits[chunk / WORD_BITS] |= bit_of(chunk);
    set->count++;
}

void stage_set_remove(struct stage_set *set, uint32_t chunk)
{
    if (!stage_set_has(set, chunk))
        return;
    set->bits[chunk / WORD_BITS] &= ~bit_of(chunk);
    set->count--;
}

uint32_t stage_set_next(const struct stage_set *set, uint32_t from)
{
    while (from < set->size && !stage_set_has(set, from)) {
        /* Skips words without a chunk. */
        if (from % WORD_BITS == 0 && set->bits[from / WORD_BITS] == 0)
            from = set->size - from > WORD_BITS ? from + WORD_BITS : set->size;
        else
            from++;
    }
    return from < set->size ? from : set->size;
}

size_t stage_set_encode(const struct stage_set *set, uint32_t *from, uint8_t *data,
                        size_t size)
{
    struct ct_writer out;

    ct_writer_init(&out, data, size);
    *from = stage_set_next(set, *from);
    while (*from < set->size && size - out.length >= RUN_BYTES) {
        uint32_t end = *from;

        while (stage_set_has(set, end))
            end++;
        ct_write_u32(&out, *from);
        ct_write_u32(&out, end - *from);
        *from = stage_set_next(set, end);
    }
    return out.length;
}

int stage_set_decode(struct stage_set *set, const void *data, size_t length)
{
    struct ct_reader in;
    uint32_t end =
        0; /* runs must be in ascending order, as they are written: no chunk twice */

    ct_reader_init(&in, data, length);
    while (in.left > 0 && !in.bad) {
        const uint32_t first = ct_read_u32(&in);
        const uint32_t count = ct_read_u32(&in);

        if (in.bad || first < end || first > set->size || count == 0 ||
            count > set->size - first)
            return -EBADMSG;
        end = first + count;
        for (uint32_t i = 0; i < count; i++)
            stage_set_add(set, first + i);
    }
    return ct_read_end(&in);
}
