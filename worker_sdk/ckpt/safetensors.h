/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors format: the header of a file. Pure functions of bytes.
 *
 *     0..7        8..8+N                                      8+N..
 *     N, u64 LE   {"__metadata__": {"k": "v", ...},           the tensors' bytes, little-endian,
 *                  "fc1.bias": {"dtype": "F32",               row-major, back to back
 *                   "shape": [128],
 *                   "data_offsets": [begin, end]}, ...}
 *
 * Offsets count from the first byte behind the header. We write headers padded with blanks so
 * that the data begin at a multiple of 64, and larger element types first, so that every tensor
 * is aligned for its type. Decoding trusts nothing: tensors must cover the data exactly, without
 * gap or overlap, and each must be as long as its shape says. */
#pragma once

#include "worker_sdk/include/ctrun.h"

enum {
    CT_SAFETENSORS_PREFIX_BYTES = 8,
    CT_SAFETENSORS_ALIGN = 64,
    /* About a quarter of a million tensors; PyTorch's own reader stops at 100 MB. */
    CT_SAFETENSORS_HEADER_MAX_BYTES = 32 << 20,
    CT_SAFETENSORS_SHAPE_TEXT_MAX = 192,
};

struct ct_safetensors_entry {
    const char *name;  /* lives in the header's JSON tree */
    const char *dtype; /* the format's name, "F32": may be one that we cannot load */
    int dims;
    int64_t sizes[CTRUN_MAX_DIMS];
    uint64_t begin; /* within the data */
    uint64_t end;
    size_t ordinal; /* position in the order of the data */
};

struct ct_safetensors {
    struct ct_safetensors_entry *entries; /* owned; sorted by name */
    size_t count;
    struct cJSON *tree; /* owned; the parsed header */
};

/* Checks the N bytes of JSON of a file with data_bytes behind its header. 0,
 * CTRUN_E_BAD_CHECKPOINT, -ENOMEM. On failure `out` needs no deinit. */
int ct_safetensors_decode(struct ct_safetensors *out, const char *json, size_t length,
                          uint64_t data_bytes, struct ctrun_error *err);
void ct_safetensors_deinit(struct ct_safetensors *header);
/* NULL when there is none of that name. */
const struct ct_safetensors_entry *
ct_safetensors_find(const struct ct_safetensors *header, const char *name);
/* NULL when the key is not there; borrowed. */
const char *ct_safetensors_metadata(const struct ct_safetensors *header,
                                    const char *key);

/* Makes the beginning of a file (length prefix included, padded) for tensors that lie in the
 * order given. *out is allocated: free() it. 0, -ENOMEM, -E2BIG above the maximum. */
int ct_safetensors_encode(char **out, size_t *length,
                          const struct ctrun_tensor *const *tensors, size_t count,
                          const struct ctrun_metadata *metadata, size_t metadata_count);

/* "F32" for CTRUN_F32; NULL for a value that is no dtype. Static. */
const char *ct_safetensors_dtype_name(enum ctrun_dtype dtype);
/* The name itself as static text; NULL when the format has no such type. */
const char *ct_safetensors_dtype_of(const char *name);
/* Bytes of one element of the format's type "F32"; 0 when it has no such type. */
uint64_t ct_safetensors_dtype_size(const char *name);
/* A whole number from 0 to 2^53: above that a double does not have every whole number. */
bool ct_json_read_number(const struct cJSON *item, uint64_t *out);
/* "F32 (128, 9216)", for messages. */
void ct_safetensors_format_shape(char dst[CT_SAFETENSORS_SHAPE_TEXT_MAX],
                                 const char *dtype, int dims, const int64_t *sizes);
