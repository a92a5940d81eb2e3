/* SPDX-License-Identifier: Apache-2.0 */
/* libFuzzer: any bytes as an IDX file, plain or gzip. The first byte chooses the dimensions. */
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker_sdk/data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ct_idx idx;
    struct ctrun_error err;
    int fd;

    if (size < 1 || (fd = memfd_create("idx", MFD_CLOEXEC)) < 0)
        return 0;
    if (write(fd, data + 1, size - 1) != (ssize_t)(size - 1) ||
        lseek(fd, 0, SEEK_SET) != 0) {
        close(fd);
        return 0;
    }
    if (ct_idx_read(&idx, fd, "fuzz", data[0] & 1 ? 1 : 3, &err) == 0)
        ct_idx_deinit(&idx);
    return 0;
}
