/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/piece.h"

#include <errno.h>
#include <string.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/ckpt/safetensors.h"

static bool is_whole(const struct ctrun_tensor *tensor)
{
    for (int i = 0; i < tensor->dims; i++)
        if (tensor->whole[i] != 0)
            return false;
    return true;
}

int ct_piece_of_tensor(struct ct_piece *out, const struct ctrun_tensor *tensor,
                       struct ctrun_error *err)
{
    const size_t element = ctrun_dtype_size(tensor->dtype);

    *out = (struct ct_piece){.name = tensor->name,
                             .dtype = ct_safetensors_dtype_name(tensor->dtype),
                             .dims = tensor->dims};
    if (!tensor->name || !*tensor->name || strcmp(tensor->name, "__metadata__") == 0)
        return ct_fail(err, -EINVAL, "a tensor has no name, or the name __metadata__");
    if (!ct_is_utf8(tensor->name)) /* else no reader of JSON takes the file */
        return ct_fail(err, -EINVAL, "tensor '%s': its name is not UTF-8",
                       tensor->name);
    if (element == 0)
        return ct_fail(err, -EINVAL, "tensor '%s': no such dtype: %d", tensor->name,
                       (int)tensor->dtype);
    if (tensor->dims < 0 || tensor->dims > CTRUN_MAX_DIMS)
        return ct_fail(err, -EINVAL, "tensor '%s': %d dimensions: 0 to %d are possible",
                       tensor->name, tensor->dims, CTRUN_MAX_DIMS);
    for (int i = 0; i < tensor->dims; i++) {
        out->size[i] = tensor->sizes[i];
        out->whole[i] = is_whole(tensor) ? tensor->sizes[i] : tensor->whole[i];
        out->start[i] = is_whole(tensor) ? 0 : tensor->starts[i];
        if (out->size[i] < 0 || out->start[i] < 0 ||
            out->size[i] > out->whole[i] - out->start[i])
            return ct_fail(err, -EINVAL,
                           "tensor '%s': dimension %d: size %lld from %lld on does not "
                           "fit into %lld",
                           tensor->name, i, (long long)out->size[i],
                           (long long)out->start[i], (long long)out->whole[i]);
    }
    if (!ct_piece_is_sound(out))
        return ct_fail(err, -EINVAL, "tensor '%s': its sizes are too large",
                       tensor->name);
    if (ct_piece_elements(out) > 0 && !tensor->data)
        return ct_fail(err, -EINVAL, "tensor '%s': data is NULL", tensor->name);
    return 0;
}

/* After this no product of sizes of the piece overflows: the bytes of the whole tensor fit into
 * 63 bits, and a box in it has fewer. */
bool ct_piece_is_sound(const struct ct_piece *piece)
{
    int64_t bytes = (int64_t)ct_safetensors_dtype_size(piece->dtype);

    if (piece->dims < 0 || piece->dims > CTRUN_MAX_DIMS || bytes == 0)
        return false;
    for (int i = 0; i < piece->dims; i++)
        if (piece->start[i] < 0 || piece->size[i] < 0 || piece->whole[i] < 0 ||
            piece->start[i] > piece->whole[i] ||
            piece->size[i] > piece->whole[i] - piece->start[i] ||
            __builtin_mul_overflow(bytes, piece->whole[i], &bytes))
            return false;
    return true;
}

uint64_t ct_piece_elements(const struct ct_piece *piece)
{
    uint64_t count = 1;

    for (int i = 0; i < piece->dims; i++)
        count *= (uint64_t)piece->size[i];
    return count;
}

uint64_t ct_piece_bytes(const struct ct_piece *piece)
{
    return ct_piece_elements(piece) * ct_safetensors_dtype_size(piece->dtype);
}

uint64_t ct_piece_measure(const struct ct_piece *piece,
                          const uint64_t keys[CTRUN_MAX_DIMS])
{
    uint64_t measure = 1;

    for (int i = 0; i < piece->dims; i++) {
        const uint64_t begin = (uint64_t)piece->start[i];

        measure *= ct_hash_mix(keys[i] + begin + (uint64_t)piece->size[i]) -
                   ct_hash_mix(keys[i] + begin);
    }
    return measure;
}

static int compare_sizes(const int64_t *a, const int64_t *b, int dims)
{
    for (int i = 0; i < dims; i++)
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    return 0;
}

int ct_piece_compare(const struct ct_piece *a, const struct ct_piece *b)
{
    const int dims = a->dims < b->dims ? a->dims : b->dims;
    int order = strcmp(a->name, b->name);

    if (order == 0)
        order = compare_sizes(a->start, b->start, dims);
    return order ? order : compare_sizes(a->size, b->size, dims);
}

/* The part of dimension i that both have; true when there is one. */
static bool intersect(const struct ct_piece *a, const struct ct_piece *b, int i,
                      int64_t *start, int64_t *size)
{
    const int64_t a_end = a->start[i] + a->size[i], b_end = b->start[i] + b->size[i];

    *start = a->start[i] > b->start[i] ? a->start[i] : b->start[i];
    *size = (a_end < b_end ? a_end : b_end) - *start;
    return *size > 0;
}

/* For two pieces of the same tensor. Without dimensions there is one element, which both have. */
bool ct_piece_overlaps(const struct ct_piece *a, const struct ct_piece *b)
{
    int64_t start, size;

    for (int i = 0; i < a->dims; i++)
        if (!intersect(a, b, i, &start, &size))
            return false;
    return true;
}

/* Where the run that begins at `at` is in the box of `piece`. */
static uint64_t place_in(const struct ct_piece *piece, const struct ct_runs *runs)
{
    uint64_t place = 0;

    for (int i = 0; i < piece->dims; i++)
        place = place * (uint64_t)piece->size[i] +
                (uint64_t)(runs->start[i] + runs->at[i] - piece->start[i]);
    return place;
}

uint64_t ct_runs_init(struct ct_runs *runs, const struct ct_piece *source,
                      const struct ct_piece *target)
{
    uint64_t all = 1;
    int i = source->dims;

    *runs = (struct ct_runs){.source = source, .target = target, .outer = -1};
    for (int d = 0; d < source->dims; d++) {
        if (!intersect(source, target, d, &runs->start[d], &runs->size[d]))
            return 0;
        all *= (uint64_t)runs->size[d];
    }
    runs->count = 1;
    while (i > 0) { /* a dimension that both have wholly joins the one in front */
        i--;
        runs->count *= (uint64_t)runs->size[i];
        if (runs->size[i] != source->size[i] || runs->size[i] != target->size[i])
            break;
    }
    runs->outer = i;
    runs->from = UINT64_MAX; /* nothing given yet */
    return all;
}

bool ct_runs_next(struct ct_runs *runs)
{
    int i = runs->outer;

    if (runs->outer < 0)
        return false;
    if (runs->from != UINT64_MAX) {
        while (--i >= 0 && ++runs->at[i] == runs->size[i])
            runs->at[i] = 0;
        if (i < 0) {
            runs->outer = -1;
            return false;
        }
    }
    runs->from = place_in(runs->source, runs);
    runs->to = place_in(runs->target, runs);
    return true;
}
