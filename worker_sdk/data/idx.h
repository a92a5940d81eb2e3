/* SPDX-License-Identifier: Apache-2.0 */
/* IDX: an array of bytes with its dimensions in front, as MNIST is distributed.
 *
 *     0 0 0x08 dims | dims sizes, u32 big-endian | the bytes, last dimension fastest
 *
 * Plain or gzip, distinguished by content. A reader of hostile files: what a header claims is
 * compared with what the file can hold before anything is allocated. */
#pragma once

#include "worker_sdk/include/ctrun.h"

enum {
    CT_IDX_MAX_DIMS = 3
};

struct ct_idx {
    int dims;
    uint32_t sizes[CT_IDX_MAX_DIMS];
    size_t length; /* product of the sizes */
    uint8_t *data; /* owned */
};

/* Reads the whole of `fd` (taken: closed in any case), which must have `dims` dimensions.
 * `name` is the file's, for messages. 0, CTRUN_E_BAD_DATA, -ENOMEM. Blocks on the disk. */
int ct_idx_read(struct ct_idx *out, int fd, const char *name, int dims,
                struct ctrun_error *err);
/* Accepts a zeroed one. */
void ct_idx_deinit(struct ct_idx *idx);
