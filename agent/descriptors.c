/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/descriptors.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

void descriptors_reserve(int count)
{
    struct rlimit limit;
    int fd, high;

    if (count < 1 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    if (limit.rlim_cur < (rlim_t)count)
        count = (int)limit.rlim_cur;
    if ((fd = epoll_create1(EPOLL_CLOEXEC)) < 0) /* any that is surely there */
        return;
    high = fcntl(fd, F_DUPFD_CLOEXEC, count - 1);
    if (high >= 0)
        close(high);
    close(fd);
}
