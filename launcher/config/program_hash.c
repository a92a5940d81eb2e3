/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/config/program_hash.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/env.h"
#include "worker_sdk/base/hash.h"

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

uint64_t program_hash(const struct program *program, char *const *env)
{
    char file[PATH_MAX];

    if (program->mode == PROGRAM_MODULE)
        return 0;
    if (program->mode != PROGRAM_DIRECT)
        return program->args[0] ? hash_file(program->args[0]) : 0;
    return ct_env_find_program(file, sizeof file, env, program->path) ? hash_file(file)
                                                                      : 0;
}
