/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that a test sets, for LD_PRELOAD. CTRUN_TEST_CLOCK names a file of two numbers of 8
 * bytes, in nanoseconds: how far CLOCK_MONOTONIC and CLOCK_BOOTTIME are ahead, and for how long the
 * machine was suspended, which only CLOCK_BOOTTIME counts. tests/lib/clock.py writes it. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct page {
    atomic_llong ahead_ns;
    atomic_llong suspended_ns;
};

static struct page *page;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("CTRUN_TEST_CLOCK");
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = MAP_FAILED;

    if (fd >= 0) {
        at = mmap(NULL, sizeof *page, PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
    }
    if (at != MAP_FAILED)
        page = at;
}

static long long ahead_of(clockid_t id)
{
    switch (id) {
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE: return atomic_load(&page->ahead_ns);
    case CLOCK_BOOTTIME:
        return atomic_load(&page->ahead_ns) + atomic_load(&page->suspended_ns);
    default: return 0;
    }
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id,
                                                         struct timespec *out)
{
    const int rc = (int)syscall(SYS_clock_gettime, id, out);

    if (rc == 0 && page) {
        const long long ns = out->tv_sec * 1000000000LL + out->tv_nsec + ahead_of(id);

        *out = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    }
    return rc;
}
