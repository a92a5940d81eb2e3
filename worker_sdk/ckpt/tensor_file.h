/* SPDX-License-Identifier: Apache-2.0 */
/* Reads one safetensors file that may be damaged: the whole header is checked when the file is
 * opened, the bytes of each tensor when they are read. Reading is by pread(), so that a file which
 * becomes shorter meanwhile is an error and not a SIGBUS.
 *
 * In addition to the format our files have a CRC-32C of every tensor, in the metadata under one
 * key, eight hexadecimal digits and a blank each, in the order of the data. Other readers ignore
 * these sums; ours refuses bytes that changed after they were written. Files of other writers have
 * no sums and load without that check. */
#pragma once

#include "worker_sdk/ckpt/piece.h"
#include "worker_sdk/ckpt/safetensors.h"

#define CT_TENSOR_FILE_CRC_KEY "ctrun.crc32c"
enum {
    CT_TENSOR_FILE_CRC_BYTES = 9
};

struct ct_tensor_file {
    int fd;
    char *path;
    uint64_t data_start;
    uint64_t bytes;      /* of the whole file */
    uint32_t header_crc; /* CRC-32C of all in front of the data */
    struct ct_safetensors header;
    const char *crcs; /* borrowed from the header; NULL when there are none */
};

/* *out is allocated: ct_tensor_file_close(). 0, -ENOENT, CTRUN_E_BAD_CHECKPOINT, another -errno. */
int ct_tensor_file_open(struct ct_tensor_file **out, const char *path,
                        struct ctrun_error *err);
void ct_tensor_file_close(struct ct_tensor_file *file);
/* Reads the tensor of `entry`, which is the box `source`, and writes the elements that are in both
 * boxes to `data`, the box `target`. All bytes of the tensor are read and summed. */
int ct_tensor_file_read(const struct ct_tensor_file *file,
                        const struct ct_safetensors_entry *entry,
                        const struct ct_piece *source, const struct ct_piece *target,
                        void *data, struct ctrun_error *err);
/* Puts the path before the reason in err and, if the file is damaged, the remedy after it. Returns
 * rc. */
int ct_tensor_file_fail(const char *path, int rc, struct ctrun_error *err);

/* -EINVAL where a key or a value is NULL, or a key is there twice or is that of the sums: readers
 * differ in which of two values they take. */
int ct_tensor_file_check_metadata(const struct ctrun_metadata *metadata, size_t count,
                                  struct ctrun_error *err);
size_t ct_tensor_bytes(const struct ctrun_tensor *tensor);
/* Writes such a file: ctrun_checkpoint_save() without checking tensors and metadata. *bytes and
 * *header_crc: as above. */
int ct_tensor_file_write(const char *path, const struct ctrun_tensor *tensors,
                         size_t count, const struct ctrun_metadata *metadata,
                         size_t metadata_count, uint64_t *bytes, uint32_t *header_crc,
                         struct ctrun_error *err);
