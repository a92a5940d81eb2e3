/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/bind.h"

#include <errno.h>
#include <sys/resource.h>

/* The soft limit once raised; never lower than it is. */
static rlim_t raised(const struct rlimit *limit, rlim_t most)
{
    rlim_t to = most < limit->rlim_max ? most : limit->rlim_max;

    return limit->rlim_cur > to ? limit->rlim_cur : to;
}

static void raise_limit(__rlimit_resource_t resource, rlim_t most)
{
    struct rlimit limit;

    if (getrlimit(resource, &limit) < 0)
        return;
    limit.rlim_cur = raised(&limit, most);
    (void)setrlimit(resource, &limit);
}

unsigned long long bind_files_limit(bool is_raised)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return 0;
    return is_raised ? raised(&limit, BIND_FILES_MAX) : limit.rlim_cur;
}

int bind_apply(const struct bind *bind)
{
    if (bind->raises_files)
        raise_limit(RLIMIT_NOFILE, BIND_FILES_MAX);
    if (bind->raises_core)
        raise_limit(RLIMIT_CORE, RLIM_INFINITY);
    if (bind->has_cpus &&
        sched_setaffinity(0, sizeof bind->cpus.sets, bind->cpus.sets) < 0)
        return -errno;
    return 0;
}
