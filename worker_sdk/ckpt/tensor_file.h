/* SPDX-License-Identifier: Apache-2.0 */
/* One safetensors file that is read, with suspicion: its header is checked whole when it is opened, the
 * bytes of each tensor when they are read. Reading is by pread(), so that a file which shrinks under us
 * is an error and not a SIGBUS.
 *
 * What our files have beyond the format: a CRC-32C of every tensor, in the metadata under one key, eight
 * hexadecimal digits and a blank each, in the order of the data. Other readers ignore them; ours refuses
 * bytes that changed after they were written. Files of other writers have none and load without that
 * check. */
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
/* Reads the tensor of `entry`, which is the box `source`, and puts into `data`, the box `target`, what
 * both have. All of it is read and summed up. */
int ct_tensor_file_read(const struct ct_tensor_file *file,
                        const struct ct_safetensors_entry *entry,
                        const struct ct_piece *source, const struct ct_piece *target,
                        void *data, struct ctrun_error *err);
/* Puts the path in front of a reason, and the remedy behind one that is damage. Returns rc. */
int ct_tensor_file_fail(const char *path, int rc, struct ctrun_error *err);

/* Writes one: ctrun_checkpoint_save() without looking at the tensors. *bytes and *header_crc: as
 * above. */
int ct_tensor_file_write(const char *path, const struct ctrun_tensor *tensors,
                         size_t count, const struct ctrun_metadata *metadata,
                         size_t metadata_count, uint64_t *bytes, uint32_t *header_crc,
                         struct ctrun_error *err);
