/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/ckpt/tensor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/crc32c.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"

enum {
    CHUNK_BYTES = 1 << 20 /* read and summed piece by piece, while in the cache */
};

/* ---- Opening ---- */

int ct_tensor_file_fail(const char *path, int rc, struct ctrun_error *err)
{
    char why[CTRUN_ERROR_TEXT_MAX];

    if (rc != CTRUN_E_BAD_CHECKPOINT || !err)
        return ct_wrap(err, "checkpoint %s", path), rc;
    (void)ct_copy(why, sizeof why, err->text);
    return ct_fail(err, rc,
                   "checkpoint %s: %s; resume from another one, or move it away to "
                   "start from the beginning",
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
static int read_header_length(struct ct_tensor_file *file, uint64_t *length,
                              struct ctrun_error *err)
{
    uint8_t start[CT_SAFETENSORS_PREFIX_BYTES];
    struct ct_reader in;
    int rc;

    if (file->bytes < sizeof start)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "cut off: it has %llu bytes",
                       (unsigned long long)file->bytes);
    if ((rc = pread_whole(file->fd, start, sizeof start, 0)) < 0)
        return ct_fail(err, rc, "read: %s", strerror(-rc));
    file->header_crc = ct_crc32c(0, start, sizeof start);
    ct_reader_init(&in, start, sizeof start);
    *length = ct_read_u64(&in);
    if (*length > CT_SAFETENSORS_HEADER_MAX_BYTES || *length < 2)
        return foreign_file(start, *length, err);
    if (*length > file->bytes - sizeof start)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "cut off: a header of %llu bytes in a file of %llu",
                       (unsigned long long)*length, (unsigned long long)file->bytes);
    return 0;
}

static int read_header(struct ct_tensor_file *file, struct ctrun_error *err)
{
    uint64_t length = 0;
    char *json;
    int rc;

    if ((rc = read_header_length(file, &length, err)) < 0)
        return rc;
    file->data_start = CT_SAFETENSORS_PREFIX_BYTES + length;
    if (!(json = ct_zalloc((size_t)length)))
        return ct_fail(err, -ENOMEM, "out of memory");
    rc = pread_whole(file->fd, json, (size_t)length, CT_SAFETENSORS_PREFIX_BYTES);
    if (rc < 0) {
        rc = ct_fail(err, rc, "read: %s", strerror(-rc));
    } else {
        file->header_crc = ct_crc32c(file->header_crc, json, (size_t)length);
        rc = ct_safetensors_decode(&file->header, json, (size_t)length,
                                   file->bytes - file->data_start, err);
    }
    free(json);
    return rc;
}

static int find_crcs(struct ct_tensor_file *file, struct ctrun_error *err)
{
    file->crcs = ct_safetensors_metadata(&file->header, CT_TENSOR_FILE_CRC_KEY);
    if (file->crcs &&
        strlen(file->crcs) != file->header.count * CT_TENSOR_FILE_CRC_BYTES)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "header: %s has not one sum for each of %zu tensors",
                       CT_TENSOR_FILE_CRC_KEY, file->header.count);
    return 0;
}

int ct_tensor_file_open(struct ct_tensor_file **out, const char *path,
                        struct ctrun_error *err)
{
    struct ct_tensor_file *file = ct_zalloc(sizeof *file);
    struct stat st;
    int rc;

    *out = NULL;
    if (!file)
        return ct_fail(err, -ENOMEM, "checkpoint %s: out of memory", path);
    file->fd = -1;
    if (!(file->path = ct_strdup(path))) {
        rc = ct_fail(err, -ENOMEM, "out of memory");
        goto fail;
    }
    /* O_NONBLOCK: a FIFO of that name must not make us wait; for a regular file it means nothing */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0 || fstat(file->fd, &st) < 0) {
        rc = ct_fail(err, -errno, "%s", strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = ct_fail(err, CTRUN_E_BAD_CHECKPOINT, "not a regular file");
        goto fail;
    }
    file->bytes = (uint64_t)st.st_size;
    if ((rc = read_header(file, err)) < 0 || (rc = find_crcs(file, err)) < 0)
        goto fail;
    *out = file;
    return 0;
fail:
    ct_tensor_file_close(file);
    return ct_tensor_file_fail(path, rc, err);
}

void ct_tensor_file_close(struct ct_tensor_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    ct_safetensors_deinit(&file->header);
    free(file->path);
    free(file);
}

/* ---- Reading ---- */

/* The bytes of one tensor from the first to the last, each summed up once. */
struct stream {
    const struct ct_tensor_file *file;
    const struct ct_safetensors_entry *entry;
    uint64_t next; /* first byte not in the chunk yet, counted as the entry's offsets */
    uint8_t *chunk;
    size_t begin, end; /* of what is left in it */
    uint32_t crc;
};

static int stream_read(struct stream *in, void *to, size_t length,
                       struct ctrun_error *err)
{
    int rc = pread_whole(in->file->fd, to, length, in->file->data_start + in->next);

    if (rc == -ENODATA)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "the file became shorter while it was read");
    if (rc < 0)
        return ct_fail(err, rc, "read tensor '%s': %s", in->entry->name, strerror(-rc));
    in->crc = ct_crc32c(in->crc, to, length);
    in->next += length;
    return 0;
}

/* Moves the next `length` bytes to `to`; NULL: to nowhere. A long run is read straight to its
 * place; what is short or left out goes through `chunk`. All bytes are summed once, in the order
 * of the file. */
static int stream_take(struct stream *in, uint8_t *to, uint64_t length,
                       struct ctrun_error *err)
{
    int rc = 0;

    while (length > 0 && rc == 0) {
        const uint64_t left = in->entry->end - in->next;
        size_t n = in->end - in->begin;

        if (n == 0 && to && length >= CHUNK_BYTES) {
            n = CHUNK_BYTES;
            rc = stream_read(in, to, n, err);
        } else if (n == 0) {
            in->begin = 0;
            in->end = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
            rc = stream_read(in, in->chunk, in->end, err);
            continue;
        } else {
            n = n < length ? n : (size_t)length;
            if (to)
                memcpy(to, in->chunk + in->begin, n);
            in->begin += n;
        }
        if (to)
            to += n;
        length -= n;
    }
    return rc;
}

static int check_crc(const struct ct_tensor_file *file,
                     const struct ct_safetensors_entry *entry, uint32_t crc,
                     struct ctrun_error *err)
{
    const char *saved;
    char sum[CT_TENSOR_FILE_CRC_BYTES];

    if (!file->crcs)
        return 0;
    saved = file->crcs + entry->ordinal * CT_TENSOR_FILE_CRC_BYTES;
    (void)ct_format(sum, sizeof sum, "%08x", crc);
    if (memcmp(saved, sum, CT_TENSOR_FILE_CRC_BYTES - 1) == 0)
        return 0;
    return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                   "the bytes of tensor '%s' are not those that were saved "
                   "(CRC-32C is %s, %.8s was saved)",
                   entry->name, sum, saved);
}

int ct_tensor_file_read(const struct ct_tensor_file *file,
                        const struct ct_safetensors_entry *entry,
                        const struct ct_piece *source, const struct ct_piece *target,
                        void *data, struct ctrun_error *err)
{
    const uint64_t element = ct_safetensors_dtype_size(entry->dtype);
    struct stream in = {.file = file, .entry = entry, .next = entry->begin};
    struct ct_runs runs;
    uint64_t at = 0;
    int rc = 0;

    if (!(in.chunk = ct_zalloc(CHUNK_BYTES)))
        return ct_fail(err, -ENOMEM, "out of memory");
    (void)ct_runs_init(&runs, source, target);
    while (rc == 0 && ct_runs_next(&runs)) {
        if ((rc = stream_take(&in, NULL, (runs.from - at) * element, err)) == 0)
            rc = stream_take(&in, (uint8_t *)data + runs.to * element,
                             runs.count * element, err);
        at = runs.from + runs.count;
    }
    if (rc == 0)
        /* the rest is read for the sum alone */
        rc = stream_take(&in, NULL, entry->end - entry->begin - at * element, err);
    if (rc == 0)
        rc = check_crc(file, entry, in.crc, err);
    free(in.chunk);
    return rc < 0 ? ct_tensor_file_fail(file->path, rc, err) : 0;
}
