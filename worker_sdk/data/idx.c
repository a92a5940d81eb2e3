/* SPDX-License-Identifier: Apache-2.0 */
/* Reads header, sizes, bytes and end: every error says which file, where and why. */
#include "worker_sdk/data/idx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"

enum {
    IDX_TYPE_U8 = 0x08,
    IDX_READ_CHUNK = 1 << 20,
    /* deflate cannot do better than 1032 to 1, so a file of n bytes holds at most this many */
    IDX_DEFLATE_RATIO = 1032,
};
static const char idx_remedy[] = "fetch the data set again";

/* A file that is being read. */
struct idx_file {
    gzFile gz;
    const char *name;
    uint64_t disk_bytes;
    size_t offset; /* of the next byte, after decompression */
    struct ctrun_error *err;
};

static int file_open(struct idx_file *file, int fd)
{
    struct stat st;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return ct_fail(file->err, CTRUN_E_BAD_DATA, "%s: not a regular file",
                       file->name);
    }
    file->disk_bytes = (uint64_t)st.st_size;
    /* From here on the descriptor is zlib's: gzclose_r() closes it. */
    if (!(file->gz = gzdopen(fd, "rb"))) {
        close(fd);
        return ct_fail(file->err, -ENOMEM, "%s: out of memory", file->name);
    }
    return 0;
}

/* zlib's error text, without the "<fd:7>: " it puts in front. */
static const char *zlib_reason(gzFile gz, int *code)
{
    const char *text = gzerror(gz, code);
    const char *behind = strstr(text, ">: ");

    if (*code == Z_ERRNO)
        return strerror(errno);
    return behind ? behind + 3 : text;
}

/* A read failed at `at`. Another copy of the file helps only if its bytes are wrong. */
static int fail_read(const struct idx_file *file, size_t at, const char *part, int code,
                     const char *why)
{
    if (code == Z_MEM_ERROR)
        return ct_fail(file->err, -ENOMEM, "%s: out of memory", file->name);
    if (code == Z_ERRNO)
        return ct_fail(file->err, CTRUN_E_BAD_DATA, "%s: byte %zu, %s: %s", file->name,
                       at, part, why);
    return ct_fail(file->err, CTRUN_E_BAD_DATA, "%s: byte %zu, %s: %s; %s", file->name,
                   at, part, why, idx_remedy);
}

/* Reads exactly `length` bytes; `part` names them in messages. */
static int file_read(struct idx_file *file, void *to, size_t length, const char *part)
{
    uint8_t *at = to;

    while (length > 0) {
        unsigned want = length < IDX_READ_CHUNK ? (unsigned)length : IDX_READ_CHUNK;
        int got = gzread(file->gz, at, want);
        /* zlib's error code tells a file that ends early from a damaged one: gzread() returns a
         * short count in both cases. */
        int zerr = Z_OK;
        const char *why = zlib_reason(file->gz, &zerr);

        if (got < 0 || (zerr != Z_OK && zerr != Z_STREAM_END && (unsigned)got < want))
            return fail_read(file, file->offset + (got > 0 ? (size_t)got : 0), part,
                             zerr, why);
        file->offset += (size_t)got;
        if ((unsigned)got < want)
            return ct_fail(file->err, CTRUN_E_BAD_DATA,
                           "%s: ends at byte %zu, %s, which reaches to byte %zu; %s",
                           file->name, file->offset, part,
                           file->offset + length - (size_t)got, idx_remedy);
        at += got;
        length -= (size_t)got;
    }
    return 0;
}

static int read_magic(struct idx_file *file, int dims)
{
    uint8_t magic[4];
    int rc;

    if ((rc = file_read(file, magic, sizeof magic, "in the header")) < 0)
        return rc;
    if (magic[0] != 0 || magic[1] != 0)
        return ct_fail(file->err, CTRUN_E_BAD_DATA,
                       "%s: not an IDX file: it begins with %02x %02x, not 00 00; %s",
                       file->name, magic[0], magic[1], idx_remedy);
    if (magic[2] != IDX_TYPE_U8)
        return ct_fail(
            file->err, CTRUN_E_BAD_DATA,
            "%s: byte 2: element type 0x%02x; only 0x08 (unsigned bytes) is supported",
            file->name, magic[2]);
    if (magic[3] != dims)
        return ct_fail(file->err, CTRUN_E_BAD_DATA,
                       "%s: byte 3: %d dimensions where %d are expected: is it the "
                       "other file of the pair?",
                       file->name, magic[3], dims);
    return 0;
}

/* Sizes into out, their product into out->length, checked against what the file can hold. */
static int read_sizes(struct idx_file *file, struct ct_idx *out)
{
    uint64_t limit = file->disk_bytes * (gzdirect(file->gz) ? 1 : IDX_DEFLATE_RATIO);
    uint64_t length = 1;
    int rc;

    for (int i = 0; i < out->dims; i++) {
        size_t at = file->offset;
        uint8_t b[4];

        if ((rc = file_read(file, b, sizeof b, "in the header")) < 0)
            return rc;
        out->sizes[i] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 |
                        (uint32_t)b[2] << 8 | (uint32_t)b[3];
        if (out->sizes[i] == 0)
            return ct_fail(file->err, CTRUN_E_BAD_DATA,
                           "%s: byte %zu: dimension %d is 0; %s", file->name, at, i,
                           idx_remedy);
        /* Checked before anything is allocated: a small file must not make us allocate terabytes.
         * By division, since the product could overflow. */
        if (out->sizes[i] > limit / length)
            return ct_fail(file->err, CTRUN_E_BAD_DATA,
                           "%s: byte %zu: dimension %d is %u: a file of %llu bytes "
                           "cannot hold so many elements; %s",
                           file->name, at, i, out->sizes[i],
                           (unsigned long long)file->disk_bytes, idx_remedy);
        length *= out->sizes[i];
    }
    out->length = (size_t)length;
    return 0;
}

/* Nothing may follow, and a gzip trailer (length, CRC) must fit what was read. */
static int read_end(struct idx_file *file)
{
    uint8_t byte;
    int got = gzread(file->gz, &byte, 1);
    int zerr = Z_OK;
    const char *why = zlib_reason(file->gz, &zerr);

    if (got < 0 || (got == 0 && zerr != Z_OK && zerr != Z_STREAM_END))
        return fail_read(file, file->offset, "at the end", zerr, why);
    if (got > 0)
        return ct_fail(
            file->err, CTRUN_E_BAD_DATA,
            "%s: continues behind byte %zu, where its header says it ends; %s",
            file->name, file->offset, idx_remedy);
    return 0;
}

static int read_all(struct idx_file *file, struct ct_idx *out)
{
    int rc;

    if ((rc = read_magic(file, out->dims)) < 0 || (rc = read_sizes(file, out)) < 0)
        return rc;
    if (!(out->data = ct_zalloc(out->length)))
        return ct_fail(file->err, -ENOMEM, "%s: out of memory for %zu bytes",
                       file->name, out->length);
    if ((rc = file_read(file, out->data, out->length, "in the data")) < 0)
        return rc;
    return read_end(file);
}

int ct_idx_read(struct ct_idx *out, int fd, const char *name, int dims,
                struct ctrun_error *err)
{
    struct idx_file file = {.name = name, .err = err};
    int rc;

    *out = (struct ct_idx){.dims = dims};
    if ((rc = file_open(&file, fd)) < 0)
        return rc;
    rc = read_all(&file, out);
    (void)gzclose_r(file.gz); /* read_end() has seen the trailer */
    if (rc < 0)
        ct_idx_deinit(out);
    return rc;
}

void ct_idx_deinit(struct ct_idx *idx)
{
    free(idx->data);
    *idx = (struct ct_idx){.dims = 0};
}
