/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/topology.h"

#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    TEXT_MAX_BYTES = 4096, /* sysfs never gives more than a page */
    CACHES_MAX = 16
};

__attribute__((format(printf, 3, 0))) static int
make_path(char path[PATH_MAX], const char *root, const char *format, va_list args)
{
    const int used = ct_format(path, PATH_MAX, "%s/", root);
    int n;

    if (used < 0)
        return -ENAMETOOLONG;
    n = vsnprintf(path + used, (size_t)(PATH_MAX - used), format, args);
    return n < 0 || n >= PATH_MAX - used ? -ENAMETOOLONG : 0;
}

int topology_read(char *dst, size_t size, const char *root, const char *format, ...)
{
    char path[PATH_MAX];
    va_list args;
    int rc;

    va_start(args, format);
    rc = make_path(path, root, format, args);
    va_end(args);
    if (rc == 0)
        rc = (int)ct_small_file_line(dst, size, path);
    return rc < 0 ? rc : 0;
}

int topology_read_link(char *dst, size_t size, const char *root, const char *format,
                       ...)
{
    char path[PATH_MAX];
    va_list args;
    ssize_t n;
    int rc;

    va_start(args, format);
    rc = make_path(path, root, format, args);
    va_end(args);
    if (rc < 0)
        return rc;
    if ((n = readlink(path, dst, size)) < 0)
        return -errno;
    if ((size_t)n == size)
        return -ENAMETOOLONG;
    dst[n] = '\0';
    return 0;
}

static int parse_int(const char *text, int *out)
{
    int64_t value;
    int rc = ct_parse_i64(text, INT_MIN, INT_MAX, &value);

    if (rc == 0)
        *out = (int)value;
    return rc;
}

int topology_nodes(const char *root, struct cpuset *out)
{
    char text[TEXT_MAX_BYTES];
    int rc = topology_read(text, sizeof text, root, "devices/system/node/online");

    if (rc == -ENOENT)
        return cpuset_parse(out, "0");
    return rc < 0 ? rc : cpuset_parse(out, text);
}

int topology_node_cpus(const char *root, int node, struct cpuset *out)
{
    char text[TEXT_MAX_BYTES];
    int rc = topology_read(text, sizeof text, root,
                           "devices/system/node/node%d/cpulist", node);

    if (rc == -ENOENT && node == 0) /* a kernel without NUMA: all CPUs */
        rc = topology_read(text, sizeof text, root, "devices/system/cpu/online");
    return rc < 0 ? rc : cpuset_parse(out, text);
}

/* The kernel reports -1 on machines with one node and on many virtual machines: taken as node 0. */
int topology_pci_node(const char *root, const char *address, int *out)
{
    char text[TEXT_MAX_BYTES];
    int rc = topology_read(text, sizeof text, root, "bus/pci/devices/%s/numa_node",
                           address);

    if (rc == 0 && (rc = parse_int(text, out)) == 0 && *out < 0)
        *out = 0;
    return rc;
}

int topology_package(const char *root, int cpu, int *out)
{
    char text[TEXT_MAX_BYTES];
    int rc = topology_read(text, sizeof text, root,
                           "devices/system/cpu/cpu%d/topology/physical_package_id",
                           cpu);

    return rc < 0 ? rc : parse_int(text, out);
}

void topology_siblings(const char *root, int cpu, struct cpuset *out)
{
    char text[TEXT_MAX_BYTES];

    if (topology_read(text, sizeof text, root,
                      "devices/system/cpu/cpu%d/topology/thread_siblings_list",
                      cpu) < 0 ||
        cpuset_parse(out, text) < 0)
        *out = (struct cpuset){0};
    /* always `cpu` itself, so that callers make progress */
    cpuset_add(out, cpu);
}

/* Takes the highest level of a data or unified cache: an instruction cache may have a higher
 * index. */
int topology_last_cache(const char *root, int cpu, struct cpuset *out)
{
    char text[TEXT_MAX_BYTES];
    int highest = 0;
    int best = -1;
    int rc;

    for (int i = 0; i < CACHES_MAX; i++) {
        int level;

        if (topology_read(text, sizeof text, root,
                          "devices/system/cpu/cpu%d/cache/index%d/type", cpu, i) < 0)
            break;
        if (strcmp(text, "Data") != 0 && strcmp(text, "Unified") != 0)
            continue;
        if (topology_read(text, sizeof text, root,
                          "devices/system/cpu/cpu%d/cache/index%d/level", cpu,
                          i) == 0 &&
            parse_int(text, &level) == 0 && level > highest) {
            highest = level;
            best = i;
        }
    }
    if (best < 0)
        return -ENOENT;
    rc = topology_read(text, sizeof text, root,
                       "devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu,
                       best);
    return rc < 0 ? rc : cpuset_parse(out, text);
}

/* A core counts once if any of its threads is in `cpus`: two threads of one core do not compute
 * as fast as two cores. */
int topology_count_cores(const char *root, const struct cpuset *cpus)
{
    struct cpuset seen = {0};
    struct cpuset core;
    int count = 0;

    for (int cpu = cpuset_next(cpus, 0); cpu >= 0; cpu = cpuset_next(cpus, cpu + 1)) {
        if (cpuset_has(&seen, cpu))
            continue;
        topology_siblings(root, cpu, &core);
        cpuset_unite(&seen, &core);
        count++;
    }
    return count;
}
