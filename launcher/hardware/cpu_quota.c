/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/cpu_quota.h"

#include "agent/process/cgroup_path.h"

/* Microseconds of CPU time in each period of so many microseconds. */
static bool read_limit(const struct cgroup_path *cgroup, uint64_t *quota,
                       uint64_t *period)
{
    if (cgroup->is_v1)
        return cgroup_path_read(cgroup, "cpu.cfs_quota_us", quota) &&
               cgroup_path_read(cgroup, "cpu.cfs_period_us", period);
    return cgroup_path_read_pair(cgroup, "cpu.max", quota, period);
}

int cpu_quota_find(const char *membership, const char *root)
{
    struct cgroup_path cgroup;
    uint64_t quota, period, least = 0;

    if (!cgroup_path_find(&cgroup, "cpu,cpuacct", membership, root) || !cgroup.is_v1)
        (void)cgroup_path_find(&cgroup, "cpu", membership, root);
    do {
        if (*cgroup.directory && read_limit(&cgroup, &quota, &period) && period > 0) {
            const uint64_t cpus = quota / period + (quota % period > 0);

            least = cpus > 0 && (least == 0 || cpus < least) ? cpus : least;
        }
    } while (cgroup_path_go_up(&cgroup));
    return least > INT_MAX ? 0 : (int)least;
}
