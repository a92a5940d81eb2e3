/* SPDX-License-Identifier: Apache-2.0 */
/* A clock that a test sets, for LD_PRELOAD. CTRUN_TEST_CLOCK names a file of two numbers of 8
 * bytes, in nanoseconds: how far CLOCK_MONOTONIC and CLOCK_BOOTTIME are ahead, and for how long the
 * machine was suspended, which only CLOCK_BOOTTIME counts. From STANDS_NS on the first number is
 * STANDS_NS and the time at which CLOCK_MONOTONIC stands. tests/lib/clock.py writes it. */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STANDS_NS (1LL << 62)

struct page {
    atomic_llong ahead_ns;
    atomic_llong suspended_ns;
};

static struct page *page;
static long long boot_ns; /* CLOCK_BOOTTIME is so much ahead of CLOCK_MONOTONIC */

static long long real_ns(clockid_t id)
{
    struct timespec time = {0};

    (void)syscall(SYS_clock_gettime, id, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

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
    boot_ns = real_ns(CLOCK_BOOTTIME) - real_ns(CLOCK_MONOTONIC);
}

static long long read_ns(clockid_t id)
{
    const long long ahead_ns = atomic_load(&page->ahead_ns);
    const bool is_boot = id == CLOCK_BOOTTIME;
    const long long ns = ahead_ns < STANDS_NS
                             ? real_ns(id) + ahead_ns
                             : ahead_ns - STANDS_NS + (is_boot ? boot_ns : 0);

    return is_boot ? ns + atomic_load(&page->suspended_ns) : ns;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id,
                                                         struct timespec *out)
{
    if (page && (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE ||
                 id == CLOCK_BOOTTIME)) {
        const long long ns = read_ns(id);

        *out = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
        return 0;
    }
    return (int)syscall(SYS_clock_gettime, id, out);
}
