/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a checkpoint, with suspicion: the header is checked whole when the file is opened,
 * each tensor's bytes when it is loaded. Reading is by pread(), so that a file which shrinks
 * under us is an error and not a SIGBUS. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ckpt/checkpoint.h"
#include "worker_sdk/ckpt/safetensors.h"

static const char module_prefix[] = "module.";

enum {
    CHECKPOINT_CHUNK = 1 << 20
}; /* read and summed piece by piece, while in the cache */

struct ctrun_checkpoint {
    int fd;
    char *path;
    uint64_t data_start;
    struct ct_safetensors header;
    const char *crcs; /* borrowed from the header; NULL when there are none */
};

/* ---- Opening ---- */

/* Puts the path in front of a reason and the remedy behind it. */
static int damaged(const char *path, int rc, struct ctrun_error *err)
{
    char why[CTRUN_ERROR_TEXT_MAX];

    if (rc != CTRUN_E_BAD_CHECKPOINT || !err)
        return ct_wrap(err, "checkpoint %s", path), rc;
    (void)ct_copy(why, sizeof why, err->text);
    return ct_fail(
        err, rc,
        "checkpoint %s: %s; resume from another one, or move it away to start anew",
        path, why);
}

static int foreign_file(const uint8_t *start, uint64_t header_bytes,
                        struct ctrun_error *err)
{
    if (memcmp(start, "PK\3\4", 4) == 0)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "a file of torch.save(), not safetensors: convert it with "
                       "safetensors.torch.save_file()");
    return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                   "not a safetensors file, or damaged: a header of %llu bytes",
                   (unsigned long long)header_bytes);
}

static int pread_whole(int fd, void *to, size_t length, uint64_t offset)
{
    char *at = to;

    while (length > 0) {
        ssize_t n = pread(fd, at, length, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        at += n;
        offset += (uint64_t)n;
        length -= (size_t)n;
    }
    return 0;
}

/* The length prefix, checked against the file and the maximum. */
static int read_header_length(struct ctrun_checkpoint *checkpoint, uint64_t file_bytes,
                              uint64_t *length, struct ctrun_error *err)
{
    uint8_t start[CT_SAFETENSORS_PREFIX_BYTES];
    struct ct_reader in;
    int rc;

    if (file_bytes < sizeof start)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "cut off: it has %llu bytes",
                       (unsigned long long)file_bytes);
    if ((rc = pread_whole(checkpoint->fd, start, sizeof start, 0)) < 0)
        return ct_fail(err, rc, "read: %s", strerror(-rc));
    ct_reader_init(&in, start, sizeof start);
    *length = ct_read_u64(&in);
    if (*length > CT_SAFETENSORS_HEADER_MAX_BYTES || *length < 2)
        return foreign_file(start, *length, err);
    if (*length > file_bytes - sizeof start)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "cut off: a header of %llu bytes in a file of %llu",
                       (unsigned long long)*length, (unsigned long long)file_bytes);
    return 0;
}

static int read_header(struct ctrun_checkpoint *checkpoint, uint64_t file_bytes,
                       struct ctrun_error *err)
{
    uint64_t length = 0;
    char *json;
    int rc;

    if ((rc = read_header_length(checkpoint, file_bytes, &length, err)) < 0)
        return rc;
    checkpoint->data_start = CT_SAFETENSORS_PREFIX_BYTES + length;
    if (!(json = ct_zalloc((size_t)length)))
        return ct_fail(err, -ENOMEM, "out of memory");
    rc = pread_whole(checkpoint->fd, json, (size_t)length, CT_SAFETENSORS_PREFIX_BYTES);
    if (rc < 0)
        rc = ct_fail(err, rc, "read: %s", strerror(-rc));
    else
        rc = ct_safetensors_decode(&checkpoint->header, json, (size_t)length,
                                   file_bytes - checkpoint->data_start, err);
    free(json);
    return rc;
}

static int find_crcs(struct ctrun_checkpoint *checkpoint, struct ctrun_error *err)
{
    checkpoint->crcs = ct_safetensors_metadata(&checkpoint->header,
                                               CT_CHECKPOINT_CRC_KEY);
    if (checkpoint->crcs &&
        strlen(checkpoint->crcs) != checkpoint->header.count * CT_CHECKPOINT_CRC_BYTES)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "header: %s has not one sum for each of %zu tensors",
                       CT_CHECKPOINT_CRC_KEY, checkpoint->header.count);
    return 0;
}

int ctrun_checkpoint_open(struct ctrun_checkpoint **out, const char *path,
                          struct ctrun_error *err)
{
    struct ctrun_checkpoint *checkpoint = ct_zalloc(sizeof *checkpoint);
    struct stat st;
    int rc;

    *out = NULL;
    if (!checkpoint)
        return ct_fail(err, -ENOMEM, "checkpoint %s: out of memory", path);
    checkpoint->fd = -1;
    if (!(checkpoint->path = ct_strdup(path))) {
        rc = ct_fail(err, -ENOMEM, "out of memory");
        goto fail;
    }
    checkpoint->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (checkpoint->fd < 0 || fstat(checkpoint->fd, &st) < 0) {
        rc = ct_fail(err, -errno, "%s", strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "not a regular file");
        goto fail;
    }
    if ((rc = read_header(checkpoint, (uint64_t)st.st_size, err)) < 0 ||
        (rc = find_crcs(checkpoint, err)) < 0)
        goto fail;
    *out = checkpoint;
    return 0;
fail:
    ctrun_checkpoint_close(checkpoint);
    return damaged(path, rc, err);
}

void ctrun_checkpoint_close(struct ctrun_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    if (checkpoint->fd >= 0)
        close(checkpoint->fd);
    ct_safetensors_deinit(&checkpoint->header);
    free(checkpoint->path);
    free(checkpoint);
}

const char *ctrun_checkpoint_metadata(const struct ctrun_checkpoint *checkpoint,
                                      const char *key)
{
    return ct_safetensors_metadata(&checkpoint->header, key);
}

/* ---- Loading ---- */

/* By its name, or by it with "module." (as DistributedDataParallel saves) added or dropped. */
static const struct ct_safetensors_entry *
entry_find(const struct ctrun_checkpoint *checkpoint, const char *name)
{
    const struct ct_safetensors_entry *entry = ct_safetensors_find(&checkpoint->header,
                                                                   name);
    char other[PATH_MAX];

    if (!entry && ct_starts_with(name, module_prefix))
        entry = ct_safetensors_find(&checkpoint->header,
                                    name + sizeof module_prefix - 1);
    if (!entry && ct_format(other, sizeof other, "%s%s", module_prefix, name) >= 0)
        entry = ct_safetensors_find(&checkpoint->header, other);
    return entry;
}

static int entry_check(const struct ct_safetensors_entry *entry,
                       const struct ctrun_tensor *tensor, struct ctrun_error *err)
{
    const char *dtype = ct_safetensors_dtype_name(tensor->dtype);
    char there[CT_SAFETENSORS_SHAPE_TEXT_MAX];
    char wanted[CT_SAFETENSORS_SHAPE_TEXT_MAX];

    if (dtype && strcmp(entry->dtype, dtype) == 0 && entry->dims == tensor->dims &&
        memcmp(entry->sizes, tensor->sizes,
               (size_t)entry->dims * sizeof *entry->sizes) == 0)
        return 0;
    ct_safetensors_format_shape(there, entry->dtype, entry->dims, entry->sizes);
    ct_safetensors_format_shape(wanted, dtype ? dtype : "?", tensor->dims,
                                tensor->sizes);
    return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                   "of another model: tensor '%s' is %s there, %s is wanted",
                   tensor->name, there, wanted);
}

/* Reads and sums up. */
static int entry_read(const struct ctrun_checkpoint *checkpoint,
                      const struct ct_safetensors_entry *entry, char *to, uint32_t *crc,
                      struct ctrun_error *err)
{
    uint64_t at = entry->begin;
    int rc;

    *crc = 0;
    while (at < entry->end) {
        size_t n = entry->end - at < CHECKPOINT_CHUNK ? (size_t)(entry->end - at)
                                                      : CHECKPOINT_CHUNK;

        rc = pread_whole(checkpoint->fd, to, n, checkpoint->data_start + at);
        if (rc == -ENODATA)
            return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                           "it was cut off while we read it");
        if (rc < 0)
            return ct_fail(err, rc, "read tensor '%s': %s", entry->name, strerror(-rc));
        *crc = (uint32_t)crc32_z(*crc, (const uint8_t *)to, n);
        to += n;
        at += n;
    }
    return 0;
}

int ctrun_checkpoint_load(struct ctrun_checkpoint *checkpoint,
                          const struct ctrun_tensor *given, struct ctrun_error *err)
{
    const struct ct_safetensors_entry *entry;
    struct ctrun_tensor tensor = CTRUN_TENSOR_INIT;
    char sum[CT_CHECKPOINT_CRC_BYTES];
    uint32_t crc;
    int rc = ct_sized_read(&tensor, sizeof tensor, given, "CTRUN_TENSOR_INIT", err);

    if (rc < 0)
        return (void)ct_wrap(err, "load checkpoint"), rc;
    if (!(entry = entry_find(checkpoint, tensor.name)))
        rc = ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "of another model: no tensor '%s'",
                     tensor.name);
    else if ((rc = entry_check(entry, &tensor, err)) == 0 &&
             (rc = entry_read(checkpoint, entry, tensor.data, &crc, err)) == 0 &&
             checkpoint->crcs) {
        (void)ct_format(sum, sizeof sum, "%08x", crc);
        if (memcmp(checkpoint->crcs + entry->ordinal * CT_CHECKPOINT_CRC_BYTES, sum,
                   8) != 0)
            rc = ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                         "the bytes of tensor '%s' changed after they were written "
                         "(CRC-32 is %s, %.8s was saved)",
                         entry->name, sum,
                         checkpoint->crcs + entry->ordinal * CT_CHECKPOINT_CRC_BYTES);
    }
    return rc < 0 ? damaged(checkpoint->path, rc, err) : 0;
}
