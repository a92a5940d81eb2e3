/* SPDX-License-Identifier: Apache-2.0 */
/* Joins the outputs of replicas into one tensor. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/dp/dp.h"

/* Bytes of a piece; -1: it cannot be gathered. */
static int64_t bytes_of(const struct ctrun_tensor *piece)
{
    int64_t bytes = (int64_t)ctrun_dtype_size(piece->dtype);

    if (bytes == 0 || piece->dims < 0 || piece->dims > CTRUN_MAX_DIMS)
        return -1;
    for (int d = 0; d < piece->dims; d++)
        if (piece->sizes[d] < 0 ||
            __builtin_mul_overflow(bytes, piece->sizes[d], &bytes))
            return -1;
    return bytes && !piece->data ? -1 : bytes;
}

/* Whether the shapes differ in the first size at most. */
static bool fits(const struct ctrun_tensor *a, const struct ctrun_tensor *b)
{
    return a->dtype == b->dtype && a->dims == b->dims &&
           (a->dims < 2 || memcmp(a->sizes + 1, b->sizes + 1,
                                  (size_t)(a->dims - 1) * sizeof *a->sizes) == 0);
}

static int check_pieces(const struct ctrun_tensor *pieces, size_t count,
                        int64_t *samples, int64_t *bytes, struct ctrun_error *err)
{
    *samples = *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        const int64_t each = bytes_of(&pieces[i]);

        if (each < 0)
            return ct_fail(err, -EINVAL,
                           "gather: the tensor of replica %zu is not valid: its dtype, "
                           "dims or sizes are wrong, or its data is NULL",
                           i);
        if (!fits(&pieces[i], &pieces[0]))
            return ct_fail(err, CTRUN_E_MISMATCH,
                           "gather: the tensor of replica %zu has another dtype or "
                           "shape than that of replica 0: only sizes[0] can differ",
                           i);
        if (__builtin_add_overflow(*bytes, each, bytes) ||
            __builtin_add_overflow(*samples, pieces[i].dims ? pieces[i].sizes[0] : 1,
                                   samples))
            return ct_fail(
                err, -EINVAL,
                "gather: the tensors of all replicas together are too large");
    }
    return 0;
}

size_t ct_dp_piece_bytes(const struct ctrun_tensor *piece)
{
    return (size_t)bytes_of(piece);
}

int ct_dp_describe_whole(const struct ctrun_tensor *pieces, size_t count, void *room,
                         size_t room_bytes, struct ctrun_tensor *out,
                         struct ctrun_error *err)
{
    struct ctrun_tensor whole = CTRUN_TENSOR_INIT;
    int64_t samples, bytes;
    int rc;

    if (count == 0)
        return ct_fail(err, -EINVAL, "gather: there is no tensor to join: count is 0");
    if ((rc = check_pieces(pieces, count, &samples, &bytes, err)) < 0)
        return rc;
    if ((uint64_t)bytes > room_bytes)
        return ct_fail(err, -ENOSPC,
                       "gather: the result has %lld bytes, but room_bytes is %zu",
                       (long long)bytes, room_bytes);
    if (!room && bytes)
        return ct_fail(err, -EINVAL, "gather: room is NULL");
    whole.name = pieces[0].name;
    whole.dtype = pieces[0].dtype;
    whole.dims = pieces[0].dims ? pieces[0].dims : 1;
    memcpy(whole.sizes, pieces[0].sizes, sizeof whole.sizes);
    whole.sizes[0] = samples;
    whole.data = room;
    return ct_sized_write(out, &whole, sizeof whole, "CTRUN_TENSOR_INIT", err);
}

/* Checks everything before it writes a byte to `room`. (B0, ...), (B1, ...), ... become (B0 + B1 +
 * ..., ...). */
int ctrun_dp_gather(const struct ctrun_tensor *pieces, size_t count, void *room,
                    size_t room_bytes, struct ctrun_tensor *out,
                    struct ctrun_error *err)
{
    const struct ctrun_tensor defaults = CTRUN_TENSOR_INIT;
    const struct ctrun_tensor *all;
    unsigned char *at = room;
    void *list;
    int rc;

    if ((rc = ct_sized_read_array(&list, &defaults, sizeof defaults, pieces, count,
                                  "CTRUN_TENSOR_INIT", err)) < 0)
        return ct_wrap(err, "gather"), rc;
    all = list;
    rc = ct_dp_describe_whole(all, count, room, room_bytes, out, err);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const size_t each = ct_dp_piece_bytes(&all[i]);

        if (each > 0)
            memcpy(at, all[i].data, each);
        at += each;
    }
    free(list);
    return rc;
}
