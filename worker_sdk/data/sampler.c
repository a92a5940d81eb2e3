/* SPDX-License-Identifier: Apache-2.0 */
/* Which samples this rank sees in an epoch: torch.randperm and DistributedSampler, bit for bit.
 *
 * The permutation is MT19937 (classic initialiser, seed modulo 2^32) driving a forward swap.
 * Dealing is round-robin: rank r gets positions r, r + W, ... of the padded or cut order, so the
 * global batches depend on W * batch only. In addition to torch: an epoch may begin after the
 * samples that were consumed before a restart, with another world size than before. */
#include <errno.h>
#include <stdlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/sized.h"

enum {
    MT_WORDS = 624,
    MT_SHIFT = 397
};

/* torch.randperm draws 64 bits from here on (about 2^32 / 20). */
static const size_t wide_draws_from = UINT32_MAX / 20;

struct mt19937 {
    uint32_t word[MT_WORDS];
    size_t next;
};

struct ctrun_sampler {
    struct ctrun_sampler_options options;
    uint64_t epoch;
    size_t start;
    size_t length;
    uint64_t *indices; /* owned; this rank's part of the epoch; NULL with any_order */
};

static void mt_init(struct mt19937 *mt, uint32_t seed)
{
    mt->word[0] = seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t before = mt->word[i - 1];

        mt->word[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    mt->next = MT_WORDS;
}

static void mt_refill(struct mt19937 *mt)
{
    for (size_t i = 0; i < MT_WORDS; i++) {
        uint32_t y = (mt->word[i] & 0x80000000u) |
                     (mt->word[(i + 1) % MT_WORDS] & 0x7fffffffu);

        mt->word[i] = mt->word[(i + MT_SHIFT) % MT_WORDS] ^ (y >> 1) ^
                      ((y & 1) ? 0x9908b0dfu : 0);
    }
    mt->next = 0;
}

static uint32_t mt_next(struct mt19937 *mt)
{
    uint32_t y;

    if (mt->next == MT_WORDS)
        mt_refill(mt);
    y = mt->word[mt->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

void ctrun_permutation(uint64_t seed, uint64_t *out, size_t n)
{
    struct mt19937 mt;

    if (!out)
        return;
    mt_init(&mt, (uint32_t)seed);
    for (size_t i = 0; i < n; i++)
        out[i] = i;
    for (size_t i = 0; i + 1 < n; i++) {
        uint64_t draw = mt_next(&mt);
        uint64_t moved;
        size_t j;

        if (n >= wide_draws_from)
            draw = draw << 32 | mt_next(&mt); /* the first draw is the high half */
        j = i + (size_t)(draw % (n - i));
        moved = out[i];
        out[i] = out[j];
        out[j] = moved;
    }
}

/* A permutation that is computed index by index: a Feistel network over the smallest even number
 * of bits that holds n, walked along its cycle until the result is below n (fewer than four
 * rounds on average; Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). */
static uint64_t permuted(uint64_t key, uint64_t i, uint64_t n)
{
    enum {
        ROUNDS = 6
    };
    unsigned half = 1;
    uint64_t mask;

    while (half < 32 && n > (uint64_t)1 << (2 * half))
        half++;
    mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < ROUNDS; round++) {
            uint64_t next = left ^
                            (ct_hash_mix(right + ct_hash_mix(key + round)) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}

static int options_check(const struct ctrun_sampler_options *options,
                         struct ctrun_error *err)
{
    if (options->world_size < 1)
        return ct_fail(err, -EINVAL, "sampler: world size %d: at least 1 is needed",
                       options->world_size);
    if (options->rank < 0 || options->rank >= options->world_size)
        return ct_fail(
            err, -EINVAL,
            "sampler: Invalid rank %d, rank should be in the interval [0, %d]",
            options->rank, options->world_size - 1);
    return 0;
}

int ctrun_sampler_create(struct ctrun_sampler **out,
                         const struct ctrun_sampler_options *options,
                         struct ctrun_error *err)
{
    struct ctrun_sampler_options all = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_sampler *sampler;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if ((rc = ct_sized_read(&all, sizeof all, options, "CTRUN_SAMPLER_OPTIONS_INIT",
                            err)) < 0)
        return ct_wrap(err, "sampler: options"), rc;
    if ((rc = options_check(&all, err)) < 0)
        return rc;
    if (!(sampler = ct_zalloc(sizeof *sampler)))
        return ct_fail(err, -ENOMEM, "sampler: out of memory");
    sampler->options = all;
    if ((rc = ctrun_sampler_set_epoch(sampler, 0, 0, err)) < 0) {
        ctrun_sampler_destroy(sampler);
        return rc;
    }
    *out = sampler;
    return 0;
}

void ctrun_sampler_destroy(struct ctrun_sampler *sampler)
{
    if (!sampler)
        return;
    free(sampler->indices);
    free(sampler);
}

/* How many of `left` samples each rank gets. */
static size_t share(const struct ctrun_sampler_options *options, size_t left)
{
    size_t world = (size_t)options->world_size;

    return left / world + (!options->drop_last && left % world != 0);
}

/* The position of this rank's i-th sample in the epoch's order. After the end the order begins
 * again, as torch pads it; at its first sample also where the epoch begins at `start`, so that a
 * resumed epoch is that which was not interrupted. */
static size_t place_of(const struct ctrun_sampler *sampler, size_t start, size_t i)
{
    const struct ctrun_sampler_options *options = &sampler->options;

    return (start + (size_t)options->rank + i * (size_t)options->world_size) %
           options->count;
}

/* Moves each index of this rank to its place among them. In place: it comes from a later place, but
 * for the last one, which may be padding. */
static void pick(uint64_t *order, const struct ctrun_sampler *sampler, size_t start,
                 size_t length)
{
    const uint64_t last = length > 0 ? order[place_of(sampler, start, length - 1)] : 0;

    for (size_t i = 0; i + 1 < length; i++)
        order[i] = order[place_of(sampler, start, i)];
    if (length > 0)
        order[length - 1] = last;
}

static int deal(uint64_t **out, const struct ctrun_sampler *sampler, uint64_t epoch,
                size_t start, size_t length)
{
    const struct ctrun_sampler_options *options = &sampler->options;
    const size_t count = options->no_shuffle ? length : options->count;
    uint64_t *indices = ct_zalloc_array(count, sizeof *indices), *fewer;

    if (!indices)
        return -ENOMEM;
    if (options->no_shuffle) {
        for (size_t i = 0; i < length; i++)
            indices[i] = place_of(sampler, start, i);
    } else {
        ctrun_permutation(options->seed + epoch, indices, count);
        pick(indices, sampler, start, length);
        if ((fewer = ct_realloc_array(indices, length, sizeof *indices)))
            indices = fewer;
    }
    *out = indices;
    return 0;
}

int ctrun_sampler_set_epoch(struct ctrun_sampler *sampler, uint64_t epoch, size_t start,
                            struct ctrun_error *err)
{
    const struct ctrun_sampler_options *options;
    size_t length;
    uint64_t *indices = NULL;

    if (!sampler)
        return ct_fail_null(err, "sampler");
    options = &sampler->options;
    length = share(options, start < options->count ? options->count - start : 0);
    if (!options->any_order && deal(&indices, sampler, epoch, start, length) < 0)
        return ct_fail(err, -ENOMEM, "sampler: out of memory for %zu indices",
                       options->count);
    free(sampler->indices);
    sampler->indices = indices;
    sampler->epoch = epoch;
    sampler->start = start;
    sampler->length = length;
    return 0;
}

size_t ctrun_sampler_length(const struct ctrun_sampler *sampler)
{
    return sampler ? sampler->length : 0;
}

/* Each rank has one sample of padding at most: fewer than world_size pad the epoch. */
size_t ctrun_sampler_real_length(const struct ctrun_sampler *sampler)
{
    const struct ctrun_sampler_options *options;
    size_t last;

    if (!sampler || sampler->length == 0)
        return 0;
    options = &sampler->options;
    last = (size_t)options->rank + (sampler->length - 1) * (size_t)options->world_size;
    return sampler->length - (last >= options->count - sampler->start);
}

const uint64_t *ctrun_sampler_indices(const struct ctrun_sampler *sampler)
{
    return sampler ? sampler->indices : NULL;
}

uint64_t ctrun_sampler_index(const struct ctrun_sampler *sampler, size_t i)
{
    const struct ctrun_sampler_options *options;
    size_t at;

    if (!sampler)
        return 0;
    options = &sampler->options;
    if (!options->any_order)
        return sampler->indices[i];
    at = place_of(sampler, sampler->start, i);
    return options->no_shuffle ? at
                               : permuted(ct_hash_mix(options->seed) + sampler->epoch,
                                          at, options->count);
}
