/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/bind.h"

#include <sys/resource.h>

#include "agent/process/raw.h"

_Static_assert(sizeof(rlim_t) == 8, "the system call takes 64 bits");

/* The new soft limit; never lower than the present one. */
static rlim_t raised(const struct rlimit *limit, rlim_t most)
{
    rlim_t to = most < limit->rlim_max ? most : limit->rlim_max;

    return limit->rlim_cur > to ? limit->rlim_cur : to;
}

static void raise_limit(int resource, rlim_t most)
{
    struct rlimit limit;

    if (raw_call(SYS_prlimit64, 0, resource, 0, raw_pointer(&limit)) < 0)
        return;
    limit.rlim_cur = raised(&limit, most);
    (void)raw_call(SYS_prlimit64, 0, resource, raw_pointer(&limit), 0);
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
    raise_limit(RLIMIT_MEMLOCK, RLIM_INFINITY); /* InfiniBand needs locked memory */
    if (bind->raises_core)
        raise_limit(RLIMIT_CORE, RLIM_INFINITY);
    if (!bind->has_cpus)
        return 0;
    return (int)raw_call(SYS_sched_setaffinity, 0, sizeof bind->cpus.sets,
                         raw_pointer(bind->cpus.sets), 0);
}
