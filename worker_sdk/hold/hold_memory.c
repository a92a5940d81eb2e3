/* SPDX-License-Identifier: Apache-2.0 */
/* Only whole pages of the file are mapped, because a store past the end of the file raises SIGBUS.
 * The rest is written by system calls. */
#include "worker_sdk/hold/hold_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/crc32c.h"
#include "worker_sdk/base/error.h"

enum {
    HOLD_PIECE_BYTES = 256 * 1024, /* summed up, then written: it is in the cache */
};

int ct_hold_memory_open(struct ct_hold_memory *memory, struct ctrun_error *err)
{
    *memory = (struct ct_hold_memory)CT_HOLD_MEMORY_NONE;
    memory->fd = memfd_create("ctrun-checkpoint", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return memory->fd < 0 ? ct_fail(err, -errno, "its memory: %s", strerror(errno)) : 0;
}

/* Writes past the map use the descriptor, so that without a map everything still works. */
static void unmap(struct ct_hold_memory *memory)
{
    if (memory->map)
        munmap(memory->map, memory->mapped);
    memory->map = NULL;
    memory->mapped = 0;
}

/* The agent may have the file, too, but only reads it: nobody cuts it while it is mapped.
 * write_piece() handles the last part that is not a whole page. */
void ct_hold_memory_map(struct ct_hold_memory *memory)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t whole = 0;
    struct stat st;
    void *map;

    if (fstat(memory->fd, &st) == 0 && (uint64_t)st.st_size <= SIZE_MAX)
        whole = (size_t)st.st_size / page * page;
    if (whole == memory->mapped)
        return;
    unmap(memory);
    map = whole ? mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                       memory->fd, 0)
                : MAP_FAILED;
    if (map != MAP_FAILED) {
        memory->map = map;
        memory->mapped = whole;
    }
}

static int write_piece(const struct ct_hold_memory *memory, uint64_t at,
                       const uint8_t *data, size_t length)
{
    for (size_t done = 0; done < length;) {
        const ssize_t n = pwrite(memory->fd, data + done, length - done,
                                 (off_t)(at + done));

        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            return -ENOSPC;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* One pass: each byte is summed while it is in the cache, and copied. After a failure *crc and the
 * memory are undefined, and the caller gives up (ctrun_hold.is_over). */
int ct_hold_memory_write(struct ct_hold_memory *memory, uint64_t at, const void *data,
                         size_t length, uint32_t *crc, struct ctrun_error *err)
{
    const uint8_t *from = data;

    while (length > 0) {
        const bool is_mapped = at < memory->mapped;
        const size_t most = is_mapped ? memory->mapped - (size_t)at : HOLD_PIECE_BYTES;
        const size_t part = length < most ? length : most;
        int rc = 0;

        if (is_mapped) {
            *crc = ct_crc32c_copy(*crc, memory->map + at, from, part);
        } else {
            *crc = ct_crc32c(*crc, from, part);
            rc = write_piece(memory, at, from, part);
        }
        if (rc < 0)
            return ct_fail(err, rc, "its memory: %s", strerror(-rc));
        at += part;
        from += part;
        length -= part;
    }
    return 0;
}

/* The map may reach past the end now: nothing may be written to it before the next
 * ct_hold_memory_map(). */
int ct_hold_memory_cut(struct ct_hold_memory *memory, uint64_t bytes,
                       struct ctrun_error *err)
{
    return ftruncate(memory->fd, (off_t)bytes) < 0
               ? ct_fail(err, -errno, "its memory: %s", strerror(errno))
               : 0;
}

void ct_hold_memory_close(struct ct_hold_memory *memory)
{
    unmap(memory);
    if (memory->fd >= 0)
        close(memory->fd);
    *memory = (struct ct_hold_memory)CT_HOLD_MEMORY_NONE;
}
