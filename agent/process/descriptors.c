/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/descriptors.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    DESCRIPTORS_LEFT_MIN = 32 /* a rendezvous of a few nodes */
};

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

static struct rlimit users_limit;
static bool is_raised;

void descriptors_raise(void)
{
    struct rlimit limit;

    if (is_raised || getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    users_limit = limit;
    limit.rlim_cur = limit.rlim_max;
    is_raised = setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

const struct rlimit *descriptors_users_limit(void)
{
    return is_raised ? &users_limit : NULL;
}

size_t descriptors_left(size_t own)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
        limit.rlim_cur < own + DESCRIPTORS_LEFT_MIN)
        return DESCRIPTORS_LEFT_MIN;
    return limit.rlim_cur - own;
}
