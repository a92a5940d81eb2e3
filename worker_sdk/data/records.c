/* SPDX-License-Identifier: Apache-2.0 */
/* A file of records of one size, read in any order: for data sets larger than memory. The kernel
 * caches what was read as long as it has room; nothing is cached here. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"

struct ctrun_records {
    int fd;
    char *path;
    uint64_t header_bytes;
    size_t record_bytes;
    uint64_t count;
};

static int look_at(struct ctrun_records *records, struct ctrun_error *err)
{
    struct stat st;

    records->fd = open(records->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (records->fd < 0 || fstat(records->fd, &st) < 0)
        return ct_fail(err, CTRUN_E_BAD_DATA, "%s: %s", records->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ct_fail(err, CTRUN_E_BAD_DATA, "%s: not a regular file", records->path);
    if ((uint64_t)st.st_size < records->header_bytes ||
        ((uint64_t)st.st_size - records->header_bytes) % records->record_bytes != 0)
        return ct_fail(err, CTRUN_E_BAD_DATA,
                       "%s: its %llu bytes do not divide into a header of %llu bytes "
                       "and records of %zu bytes",
                       records->path, (unsigned long long)st.st_size,
                       (unsigned long long)records->header_bytes,
                       records->record_bytes);
    records->count = ((uint64_t)st.st_size - records->header_bytes) /
                     records->record_bytes;
    /* The neighbours of a record are not read next: no read-ahead. It is only advice, so errors
     * are ignored. */
    (void)posix_fadvise(records->fd, 0, 0, POSIX_FADV_RANDOM);
    return 0;
}

int ctrun_records_open(struct ctrun_records **out, const char *path,
                       uint64_t header_bytes, size_t record_bytes,
                       struct ctrun_error *err)
{
    struct ctrun_records *records;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if (!path)
        return ct_fail_null(err, "path");
    if (record_bytes == 0)
        return ct_fail(err, -EINVAL, "%s: record_bytes is 0, but must be 1 or more",
                       path);
    if (!(records = ct_zalloc(sizeof *records)))
        return ct_fail(err, -ENOMEM, "%s: out of memory", path);
    records->fd = -1;
    records->header_bytes = header_bytes;
    records->record_bytes = record_bytes;
    if (!(records->path = ct_strdup(path)))
        rc = ct_fail(err, -ENOMEM, "%s: out of memory", path);
    else
        rc = look_at(records, err);
    if (rc < 0)
        ctrun_records_close(records);
    else
        *out = records;
    return rc;
}

void ctrun_records_close(struct ctrun_records *records)
{
    if (!records)
        return;
    if (records->fd >= 0)
        close(records->fd);
    free(records->path);
    free(records);
}

uint64_t ctrun_records_count(const struct ctrun_records *records)
{
    return records ? records->count : 0;
}

static int read_record(const struct ctrun_records *records, uint64_t index, char *to,
                       struct ctrun_error *err)
{
    uint64_t at = records->header_bytes + index * records->record_bytes;
    size_t left = records->record_bytes;

    if (index >= records->count)
        return ct_fail(err, -EINVAL,
                       "%s: there is no record %llu: the file has %llu, counted from 0",
                       records->path, (unsigned long long)index,
                       (unsigned long long)records->count);
    while (left > 0) {
        const ssize_t n = pread(records->fd, to, left, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return ct_fail(err, CTRUN_E_BAD_DATA, "%s: byte %llu: %s", records->path,
                           (unsigned long long)at,
                           n < 0 ? strerror(errno)
                                 : "the file has become shorter since it was opened");
        to += n;
        at += (uint64_t)n;
        left -= (size_t)n;
    }
    return 0;
}

int ctrun_records_fetch(void *context, const uint64_t *indices, size_t count, void *out,
                        struct ctrun_error *err)
{
    const struct ctrun_records *records = context;
    int rc = 0;

    if (!records)
        return ct_fail_null(err, "records object");
    if (count && (!indices || !out))
        return ct_fail_null(err, indices ? "out" : "list of indices");
    /* Asks the disk for all records at once, not one after the other. Only advice again; for a
     * cached record it costs a microsecond. */
    for (size_t i = 0; i < count && count > 1; i++)
        if (indices[i] < records->count)
            (void)posix_fadvise(
                records->fd,
                (off_t)(records->header_bytes + indices[i] * records->record_bytes),
                (off_t)records->record_bytes, POSIX_FADV_WILLNEED);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = read_record(records, indices[i], (char *)out + i * records->record_bytes,
                         err);
    return rc;
}
