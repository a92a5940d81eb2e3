/* SPDX-License-Identifier: Apache-2.0 */
/* Linux features that older headers lack: ctrun compiles with the headers of Linux 4.18 (RHEL 8),
 * glibc 2.28 and musl, and tries the features at run time. An older kernel returns ENOSYS or
 * EINVAL. All system calls since Linux 5.0 have the same number on every processor. */
#pragma once

#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum {
    CT_SYS_pidfd_send_signal = 424, /* Linux 5.1 */
    CT_SYS_pidfd_open = 434,        /* 5.3 */
    CT_SYS_clone3 = 435,            /* 5.3 */
    CT_SYS_close_range = 436,       /* 5.9 */
    CT_SYS_pidfd_getfd = 438,       /* 5.6 */

    CT_CLOSE_RANGE_CLOEXEC = 1 << 2, /* 5.11 */
    CT_MADV_POPULATE_WRITE = 23,     /* 5.14 */
    CT_STATX_BTIME = 0x800,
};

#define CT_CLONE_VM            0x00000100ull
#define CT_CLONE_CLEAR_SIGHAND 0x100000000ull /* 5.5 */
#define CT_CLONE_INTO_CGROUP   0x200000000ull /* 5.7 */

/* struct clone_args of 5.7. */
struct ct_clone_args {
    uint64_t flags;
    uint64_t pidfd;
    uint64_t child_tid;
    uint64_t parent_tid;
    uint64_t exit_signal;
    uint64_t stack;
    uint64_t stack_size;
    uint64_t tls;
    uint64_t set_tid;
    uint64_t set_tid_size;
    uint64_t cgroup;
};

/* The members of struct statx that we read. */
struct ct_statx {
    uint32_t mask;
    uint32_t before[19];
    int64_t btime_seconds;
    uint32_t btime_nanos;
    uint32_t after[41];
};

/* Each returns -1 and sets errno on failure. */
static inline int ct_pidfd_open(pid_t pid)
{
    return (int)syscall(CT_SYS_pidfd_open, pid, 0u);
}

/* A close-on-exec copy of the descriptor `fd` of the process. */
static inline int ct_pidfd_getfd(int pidfd, int fd)
{
    return (int)syscall(CT_SYS_pidfd_getfd, pidfd, fd, 0u);
}

static inline int ct_pidfd_send_signal(int pidfd, int signal)
{
    return (int)syscall(CT_SYS_pidfd_send_signal, pidfd, signal, (void *)0, 0u);
}

static inline int ct_statx(int dir, const char *name, int flags, unsigned mask,
                           struct ct_statx *out)
{
    return (int)syscall(SYS_statx, dir, name, flags, mask, out);
}

static inline int ct_close_range(unsigned first, unsigned last)
{
    return (int)syscall(CT_SYS_close_range, first, last, 0u);
}
