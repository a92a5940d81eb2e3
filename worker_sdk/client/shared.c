/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/client/shared.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

int ct_shared_create(void **out, const char *name, size_t bytes, int flags)
{
    const int fd = memfd_create(name, MFD_CLOEXEC);
    void *memory = MAP_FAILED;
    int rc;

    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
    if (memory != MAP_FAILED) {
        *out = memory;
        return fd;
    }
    rc = -errno;
    if (fd >= 0)
        close(fd);
    return rc;
}
