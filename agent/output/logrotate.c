/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/output/logrotate.h"

#include <errno.h>
#include <limits.h>

#include "agent/loop/limits.h"
#include "worker_sdk/base/str.h"

size_t logrotate_fit(const struct logrotate *file, const char *data, size_t length,
                     bool *is_full)
{
    const uint64_t room = file->size < file->max_bytes ? file->max_bytes - file->size
                                                       : 0;
    const char *end;
    size_t at;

    *is_full = false;
    if (file->max_bytes == 0 || length <= room)
        return length;
    *is_full = true;
    at = (size_t)room; /* below length */
    if ((end = memrchr(data, '\n', at)))
        return (size_t)(end - data) + 1;
    if (!file->is_in_line && file->size > 0)
        return 0; /* this line begins the next file */
    if ((end = memchr(data + at, '\n', length - at)))
        return (size_t)(end - data) + 1;
    /* The line may have no end for long: a progress bar has none for hours. */
    if (file->size + length >= file->max_bytes + OUTPUT_PIECE_MAX_BYTES)
        return length;
    *is_full = false;
    return length;
}

void logrotate_add(struct logrotate *file, const char *data, size_t length)
{
    file->size += length;
    if (length > 0)
        file->is_in_line = data[length - 1] != '\n';
}

int logrotate_shift(const char *path, int keep)
{
    char from[PATH_MAX];
    char to[PATH_MAX];

    for (int i = keep; i > 0; i--) {
        const int rc = i == 1 ? ct_copy(from, sizeof from, path)
                              : ct_format(from, sizeof from, "%s.%d", path, i - 1);

        if (rc < 0 || ct_format(to, sizeof to, "%s.%d", path, i) < 0)
            return -ENAMETOOLONG;
        if (rename(from, to) < 0 && errno != ENOENT)
            return -errno;
    }
    return 0;
}
