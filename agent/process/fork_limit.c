/* SPDX-License-Identifier: Apache-2.0 */
/* A cgroup that is full, ours or one above it, is the cause. Else it is the user's limit, which is named if there is
 * one: to count a user's threads, /proc would have to be read. Root has no such limit. */
#include "agent/process/fork_limit.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/process/cgroup_path.h"
#include "worker_sdk/base/str.h"

enum {
    FORK_LIMIT_MAX = 320
};

static bool describe_full_cgroup(char *dst, size_t size, const char *membership,
                                 const char *root)
{
    struct cgroup_path cgroup;
    uint64_t limit = 0, count;
    bool is_full;

    (void)cgroup_path_find(&cgroup, "pids", membership, root);
    do
        is_full = cgroup_path_read(&cgroup, "pids.max", &limit) &&
                  cgroup_path_read(&cgroup, "pids.current", &count) && count >= limit;
    while (!is_full && cgroup_path_go_up(&cgroup));
    return is_full &&
           ct_format(
               dst, size,
               "cgroup %.200s is at its limit of %llu processes and threads (pids.max)",
               cgroup_path_name(&cgroup), (unsigned long long)limit) >= 0;
}

void fork_limit_describe(char *dst, size_t size, const char *membership,
                         const char *root)
{
    struct rlimit limit;

    if (describe_full_cgroup(dst, size, membership, root))
        return;
    if (getuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY)
        (void)ct_format(dst, size,
                        "this user may have %llu processes and threads (ulimit -u)",
                        (unsigned long long)limit.rlim_cur);
    else
        (void)ct_copy(dst, size,
                      "it is unknown which limit was reached: ulimit -u, or pids.max "
                      "of a cgroup");
}

int fork_limit_fail(int rc, struct ctrun_error *err)
{
    char limit[FORK_LIMIT_MAX] = "";

    if (rc == -EAGAIN)
        fork_limit_describe(limit, sizeof limit, "/proc/self/cgroup", "/sys/fs/cgroup");
    return ct_fail(err, rc, "fork: %s%s%s", strerror(-rc), *limit ? ": " : "", limit);
}
