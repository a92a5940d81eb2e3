/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/program_hash.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/hash.h"
#include "worker_sdk/base/str.h"

enum {
    PIECE_BYTES = 64 * 1024
};

static uint64_t hash_file(const char *name)
{
    static unsigned char piece[PIECE_BYTES];
    uint64_t hash = 0;
    struct stat info;
    ssize_t n;
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
        (n = pread(fd, piece, sizeof piece, 0)) >= 0) {
        hash = ct_hash(&info.st_size, sizeof info.st_size);
        hash = ct_hash_add(hash, piece, (size_t)n);
        if (info.st_size > PIECE_BYTES &&
            (n = pread(fd, piece, sizeof piece, info.st_size - PIECE_BYTES)) > 0)
            hash = ct_hash_add(hash, piece, (size_t)n);
    }
    if (fd >= 0)
        close(fd);
    return hash;
}

uint64_t program_hash(const struct program *program, const char *path)
{
    bool is_direct = program->mode == PROGRAM_DIRECT;
    const char *name = is_direct ? program->path : program->args[0];
    const char *folder;
    size_t length;

    if (program->mode == PROGRAM_MODULE || !name)
        return 0;
    if (!is_direct || strchr(name, '/'))
        return hash_file(name);
    while (path && (folder = ct_next_field(&path, ':', &length))) {
        char file[PATH_MAX];

        if (ct_format(file, sizeof file, "%.*s/%s", (int)length, folder, name) > 0 &&
            access(file, X_OK) == 0)
            return hash_file(file);
    }
    return 0;
}
