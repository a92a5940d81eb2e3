/* SPDX-License-Identifier: Apache-2.0 */
/* Writing a checkpoint: check what we were given, lay it out, then a file without a name in the
 * same directory, data, fsync, a temporary name, rename, fsync of the directory. A failure at any
 * step leaves the old file and no temporary one, and so does SIGKILL while data are written. A
 * file system without nameless files (NFS) gets the temporary name at once. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/ckpt/checkpoint.h"
#include "worker_sdk/ckpt/safetensors.h"

static size_t tensor_bytes(const struct ctrun_tensor *tensor)
{
    size_t bytes = ctrun_dtype_size(tensor->dtype);

    for (int i = 0; i < tensor->dims; i++)
        bytes *= (size_t)tensor->sizes[i];
    return bytes;
}

/* The caller's mistakes, before anything is written. */
static int tensor_check(const struct ctrun_tensor *tensor, struct ctrun_error *err)
{
    size_t bytes = ctrun_dtype_size(tensor->dtype);

    if (!tensor->name || strcmp(tensor->name, "__metadata__") == 0)
        return ct_fail(err, -EINVAL, "a tensor without a proper name");
    if (bytes == 0)
        return ct_fail(err, -EINVAL, "tensor '%s': no such dtype: %d", tensor->name,
                       (int)tensor->dtype);
    if (tensor->dims < 0 || tensor->dims > CTRUN_MAX_DIMS)
        return ct_fail(err, -EINVAL, "tensor '%s': %d dimensions: 0 to %d are possible",
                       tensor->name, tensor->dims, CTRUN_MAX_DIMS);
    for (int i = 0; i < tensor->dims; i++)
        if (tensor->sizes[i] < 0 ||
            __builtin_mul_overflow(bytes, tensor->sizes[i], &bytes))
            return ct_fail(err, -EINVAL, "tensor '%s': size %lld", tensor->name,
                           (long long)tensor->sizes[i]);
    if (bytes > 0 && !tensor->data)
        return ct_fail(err, -EINVAL, "tensor '%s': no data", tensor->name);
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    const struct ctrun_tensor *const *x = a;
    const struct ctrun_tensor *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int tensors_check(const struct ctrun_tensor **scratch, size_t count,
                         struct ctrun_error *err)
{
    int rc;

    for (size_t i = 0; i < count; i++)
        if ((rc = tensor_check(scratch[i], err)) < 0)
            return rc;
    qsort(scratch, count, sizeof *scratch, compare_names);
    for (size_t i = 1; i < count; i++)
        if (compare_names(&scratch[i - 1], &scratch[i]) == 0)
            return ct_fail(err, -EINVAL, "two tensors are called '%s'",
                           scratch[i]->name);
    return 0;
}

/* Larger elements first, so that each tensor is aligned; else in the caller's order. Empty
 * tensors come first of all: only so does the order follow from the offsets. */
static void tensors_order(const struct ctrun_tensor **out,
                          const struct ctrun_tensor *tensors, size_t count)
{
    size_t n = 0;

    for (size_t i = 0; i < count; i++)
        if (tensor_bytes(&tensors[i]) == 0)
            out[n++] = &tensors[i];
    for (size_t size = 8; size > 0; size /= 2)
        for (size_t i = 0; i < count; i++)
            if (ctrun_dtype_size(tensors[i].dtype) == size &&
                tensor_bytes(&tensors[i]) > 0)
                out[n++] = &tensors[i];
}

static uint32_t crc_of(const void *data, size_t length)
{
    return (uint32_t)crc32_z(0, data, length);
}

static char *crcs_format(const struct ctrun_tensor *const *tensors, size_t count)
{
    char *text = ct_zalloc_array(count + 1, CT_CHECKPOINT_CRC_BYTES);

    for (size_t i = 0; text && i < count; i++)
        (void)ct_format(text + i * CT_CHECKPOINT_CRC_BYTES, CT_CHECKPOINT_CRC_BYTES + 1,
                        "%08x ", crc_of(tensors[i]->data, tensor_bytes(tensors[i])));
    return text;
}

static int header_make(char **out, size_t *length,
                       const struct ctrun_tensor *const *order, size_t count,
                       const struct ctrun_metadata *metadata, size_t metadata_count,
                       struct ctrun_error *err)
{
    struct ctrun_metadata *all = ct_zalloc_array(metadata_count + 1, sizeof *all);
    char *crcs = crcs_format(order, count);
    int rc = -ENOMEM;

    if (all && crcs) {
        for (size_t i = 0; i < metadata_count; i++)
            all[i] = metadata[i];
        all[metadata_count] = (struct ctrun_metadata){.key = CT_CHECKPOINT_CRC_KEY,
                                                      .value = crcs};
        rc = ct_safetensors_encode(out, length, order, count, all, metadata_count + 1);
    }
    free(crcs);
    free(all);
    if (rc == -E2BIG)
        return ct_fail(err, rc, "too many tensors: the header exceeds %d bytes",
                       CT_SAFETENSORS_HEADER_MAX_BYTES);
    return rc < 0 ? ct_fail(err, rc, "out of memory") : 0;
}

static int write_whole(int fd, const void *data, size_t length)
{
    const char *at = data;

    while (length > 0) {
        ssize_t n = write(fd, at, length);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        at += n;
        length -= (size_t)n;
    }
    return 0;
}

/* The directory part of path, "." when it has none. */
static void directory_of(char directory[PATH_MAX], const char *path)
{
    const char *slash = strrchr(path, '/');

    (void)ct_format(directory, PATH_MAX, "%.*s", slash ? (int)(slash - path + 1) : 1,
                    slash ? path : ".");
}

/* A file that dies with us until it is named; -1 where there is no such thing. */
static int open_nameless(const char *path)
{
    char directory[PATH_MAX];

    if (access("/proc/self/fd", X_OK) < 0) /* needed to name it */
        return -1;
    directory_of(directory, path);
    return open(directory, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
}

static int give_name(int fd, const char *path)
{
    char self[64];

    (void)ct_format(self, sizeof self, "/proc/self/fd/%d", fd);
    (void)unlink(path); /* of a process that had our pid and died */
    return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

static int write_file(const char *path, const char *header, size_t header_bytes,
                      const struct ctrun_tensor *const *order, size_t count)
{
    int fd = open_nameless(path);
    bool is_nameless = fd >= 0;
    int rc;

    if (!is_nameless)
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return -errno;
    rc = write_whole(fd, header, header_bytes);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = write_whole(fd, order[i]->data, tensor_bytes(order[i]));
    if (rc == 0 && fsync(fd) < 0)
        rc = -errno;
    if (rc == 0 && is_nameless)
        rc = give_name(fd, path);
    if (close(fd) < 0 && rc == 0)
        rc = -errno;
    return rc;
}

static int sync_directory_of(const char *path)
{
    char directory[PATH_MAX];
    int rc = 0;
    int fd;

    directory_of(directory, path);
    fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fsync(fd) < 0 && errno != EINVAL) /* some file systems cannot, and need not */
        rc = -errno;
    close(fd);
    return rc;
}

static int replace_file(const char *path, const char *header, size_t header_bytes,
                        const struct ctrun_tensor *const *order, size_t count,
                        struct ctrun_error *err)
{
    char temporary[PATH_MAX];
    int rc;

    if (ct_format(temporary, sizeof temporary, "%s.tmp-%d", path, (int)getpid()) < 0)
        return ct_fail(err, -ENAMETOOLONG, "the name is too long");
    if ((rc = write_file(temporary, header, header_bytes, order, count)) < 0) {
        (void)unlink(temporary); /* may not exist; what failed is told */
        return ct_fail(err, rc, "write %s: %s", temporary, strerror(-rc));
    }
    if (rename(temporary, path) < 0) {
        rc = -errno;
        (void)unlink(temporary);
        return ct_fail(err, rc, "rename %s: %s", temporary, strerror(-rc));
    }
    if ((rc = sync_directory_of(path)) < 0)
        return ct_fail(err, rc, "sync its directory: %s", strerror(-rc));
    return 0;
}

int ctrun_checkpoint_save(const char *path, const struct ctrun_tensor *given,
                          size_t count, const struct ctrun_metadata *metadata,
                          size_t metadata_count, struct ctrun_error *err)
{
    const struct ctrun_tensor **order = ct_zalloc_array(count, sizeof(*order));
    static const struct ctrun_tensor defaults = CTRUN_TENSOR_INIT;
    const struct ctrun_tensor *tensors;
    size_t header_bytes = 0;
    char *header = NULL;
    void *list = NULL;
    int rc;

    if (!order) {
        rc = ct_fail(err, -ENOMEM, "out of memory");
        goto done;
    }
    if ((rc = ct_sized_read_array(&list, &defaults, sizeof defaults, given, count,
                                  "CTRUN_TENSOR_INIT", err)) < 0)
        goto done;
    tensors = list;
    for (size_t i = 0; i < count; i++)
        order[i] = &tensors[i];
    if ((rc = tensors_check(order, count, err)) < 0)
        goto done;
    tensors_order(order, tensors, count);
    if ((rc = header_make(&header, &header_bytes, order, count, metadata,
                          metadata_count, err)) < 0)
        goto done;
    rc = replace_file(path, header, header_bytes, order, count, err);
done:
    free(header);
    free(list);
    free(order);
    return rc < 0 ? (ct_wrap(err, "save checkpoint %s", path), rc) : 0;
}
