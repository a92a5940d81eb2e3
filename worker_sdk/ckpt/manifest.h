/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest of a sharded checkpoint: which files it has, and which box of which tensor is in which.
 * It is written last, so that a folder with a manifest is complete. Pure functions of bytes.
 *
 *     {"format": "ctrun.shards.1", "step": 1000,
 *      "metadata": {"k": "v", ...},
 *      "shards": [{"file": "shard-00000-of-00002-1a2b3c4d.safetensors", "bytes": 4096,
 *                  "header_crc32c": "00c0ffee"}, ...],
 *      "tensors": {"fc1.weight": {"dtype": "F32", "shape": [128, 9216],
 *                                 "pieces": [{"shard": 0, "start": [0, 0], "shape": [64, 9216]},
 *                                            ...]}, ...},
 *      "crc32c": "0badcafe"}
 *
 * Each shard is a safetensors file in the same folder and has its pieces under the names of their
 * tensors; header_crc32c covers all bytes before its data, among them the sum of every piece. The
 * sum at the end covers all bytes before `,"crc32c"`. Decoding trusts nothing: it checks that
 * names stay in the folder, boxes cut up their tensors, indices are in their tables. */
#pragma once

#include "worker_sdk/ckpt/piece.h"

#define CT_MANIFEST_FILE "manifest.json"
enum {
    CT_MANIFEST_MAX_BYTES = 32 << 20, /* some 300,000 pieces */
    CT_MANIFEST_SHARD_NAME_MAX = 64,
};

struct ct_manifest_shard {
    char file[CT_MANIFEST_SHARD_NAME_MAX];
    uint64_t bytes;
    uint32_t header_crc;
};

struct ct_manifest {
    uint64_t step;
    struct ct_manifest_shard *shards; /* owned */
    size_t shard_count;
    struct ct_piece
        *pieces; /* owned; ct_piece_compare() has them in order; owner: the shard */
    size_t piece_count;
    struct cJSON *tree; /* owned; the parsed text */
};

/* 0, CTRUN_E_BAD_CHECKPOINT, -ENOMEM. On failure `out` needs no deinit. */
int ct_manifest_decode(struct ct_manifest *out, const char *json, size_t length,
                       struct ctrun_error *err);
void ct_manifest_deinit(struct ct_manifest *manifest);
/* NULL when the key is not there; borrowed. */
const char *ct_manifest_metadata(const struct ct_manifest *manifest, const char *key);
/* The pieces of a tensor, *count of them; NULL when there is none of that name. */
const struct ct_piece *ct_manifest_find(const struct ct_manifest *manifest,
                                        const char *name, size_t *count);

/* The text for a step (at most 2^53), shards and pieces in order. *out is allocated: free() it. 0, -ENOMEM,
 * -E2BIG above the maximum. */
int ct_manifest_encode(char **out, size_t *length, const struct ct_manifest *manifest,
                       const struct ctrun_metadata *metadata, size_t metadata_count);
