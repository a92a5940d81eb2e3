/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/numa.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/hardware/topology.h"
#include "worker_sdk/base/alloc.h"

/* The NUMA node of one GPU. */
struct spot {
    int node;
    int position; /* among the GPUs of its node */
    int gpus;     /* of its node */
};

int numa_parse_mode(const char *name, enum numa_mode *out)
{
    static const char *const names[] = {[NUMA_NODE] = "node",
                                        [NUMA_SOCKET] = "socket",
                                        [NUMA_EXCLUSIVE] = "exclusive",
                                        [NUMA_CORE_COMPLEX] = "core-complex",
                                        [NUMA_CORES] = "cores"};

    for (size_t i = NUMA_NODE; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (enum numa_mode)i;
            return 0;
        }
    }
    return -EINVAL;
}

static int gpu_node(const struct numa_machine *machine, int gpu, int *out,
                    struct ctrun_error *err)
{
    int rc = topology_pci_node(machine->sysfs, machine->gpus[gpu], out);

    return rc < 0 ? ct_fail(err, rc, "--numa-binding: NUMA node of GPU %d (%s): %s",
                            gpu, machine->gpus[gpu], strerror(-rc))
                  : 0;
}

static int find_spot(const struct numa_machine *machine, int gpu, struct spot *out,
                     struct ctrun_error *err)
{
    int node;
    int rc;

    *out = (struct spot){0};
    if (gpu >= machine->gpu_count)
        return ct_fail(err, CTRUN_E_RESOURCES,
                       "--numa-binding: worker %d has no accelerator: %d visible", gpu,
                       machine->gpu_count);
    if ((rc = gpu_node(machine, gpu, &out->node, err)) < 0)
        return rc;
    for (int i = 0; i < machine->gpu_count; i++) {
        if ((rc = gpu_node(machine, i, &node, err)) < 0)
            return rc;
        out->position += node == out->node && i < gpu;
        out->gpus += node == out->node;
    }
    return 0;
}

/* The node's CPUs that this process may use; an error if there is none. */
static int node_cpus(struct cpuset *out, const struct numa_machine *machine, int node,
                     struct ctrun_error *err)
{
    char text[128];
    int rc = topology_node_cpus(machine->sysfs, node, out);

    if (rc < 0)
        return ct_fail(err, rc, "--numa-binding: CPUs of NUMA node %d: %s", node,
                       strerror(-rc));
    cpuset_intersect(out, machine->allowed);
    if (cpuset_count(out) > 0)
        return 0;
    cpuset_format(machine->allowed, text, sizeof text);
    return ct_fail(err, CTRUN_E_RESOURCES,
                   "--numa-binding: none of the CPUs of NUMA node %d may be used: this "
                   "process is bound to %s; ask for more (srun --cpus-per-task or "
                   "--cpu-bind=none) or leave --numa-binding out",
                   node, text);
}

static int socket_cpus(struct cpuset *cpus, const struct numa_machine *machine,
                       struct ctrun_error *err)
{
    struct cpuset nodes;
    int own;
    int first = cpuset_next(cpus, 0);
    int rc = topology_package(machine->sysfs, first, &own);

    if (rc < 0 || (rc = topology_nodes(machine->sysfs, &nodes)) < 0)
        return ct_fail(err, rc, "--numa-binding=socket: socket of CPU %d: %s", first,
                       strerror(-rc));
    for (int node = cpuset_next(&nodes, 0); node >= 0;
         node = cpuset_next(&nodes, node + 1)) {
        struct cpuset more;
        int package;

        if (topology_node_cpus(machine->sysfs, node, &more) < 0 ||
            cpuset_count(&more) == 0 || /* memory alone */
            topology_package(machine->sysfs, cpuset_next(&more, 0), &package) < 0 ||
            package != own)
            continue;
        cpuset_intersect(&more, machine->allowed);
        cpuset_unite(cpus, &more);
    }
    return 0;
}

/* One of several shares of the cores of a set. Shares differ by one core at most: the first ones have
 * one more. */
struct share {
    int first; /* core */
    int last;  /* the one behind its last */
    int cores; /* of the set */
};

static struct share find_share(const struct numa_machine *machine,
                               const struct cpuset *cpus, int position, int shares)
{
    const int cores = topology_count_cores(machine->sysfs, cpus);
    const int each = cores / shares, extra = cores % shares;
    const int first = position * each + (position < extra ? position : extra);

    return (struct share){first, first + each + (position < extra), cores};
}

/* Adds the CPUs of the share's cores to `out`, and counts all cores of `cpus` in *core. Whole cores,
 * so that no two workers share one. */
static void add_share(struct cpuset *out, const struct numa_machine *machine,
                      const struct cpuset *cpus, const struct share *share, int *core)
{
    struct cpuset seen = {0};

    for (int cpu = cpuset_next(cpus, 0); cpu >= 0; cpu = cpuset_next(cpus, cpu + 1)) {
        struct cpuset threads;

        if (cpuset_has(&seen, cpu))
            continue;
        topology_siblings(machine->sysfs, cpu, &threads);
        cpuset_unite(&seen, &threads);
        if (*core >= share->first && *core < share->last)
            cpuset_unite(out, &threads);
        (*core)++;
    }
}

static int exclusive_cpus(struct cpuset *cpus, const struct numa_machine *machine,
                          const struct spot *spot, struct ctrun_error *err)
{
    const struct share share = find_share(machine, cpus, spot->position, spot->gpus);
    struct cpuset mine = {0};
    int core = 0;

    if (share.cores < spot->gpus)
        return ct_fail(err, CTRUN_E_RESOURCES,
                       "--numa-binding=exclusive: NUMA node %d has %d usable cores for "
                       "%d GPUs; try --numa-binding=node",
                       spot->node, share.cores, spot->gpus);
    add_share(&mine, machine, cpus, &share, &core);
    cpuset_intersect(cpus, &mine);
    return 0;
}

static int cores_cpus(struct cpuset *out, const struct numa_machine *machine,
                      int local_rank, struct ctrun_error *err)
{
    const struct share share = find_share(machine, machine->allowed, local_rank,
                                          machine->workers);
    struct cpuset nodes;
    int core = 0;
    int rc = topology_nodes(machine->sysfs, &nodes);

    if (rc < 0)
        return ct_fail(err, rc, "--numa-binding=cores: NUMA nodes: %s", strerror(-rc));
    if (share.cores < machine->workers)
        return ct_fail(err, CTRUN_E_RESOURCES,
                       "--numa-binding=cores: %d usable cores for %d workers",
                       share.cores, machine->workers);
    *out = (struct cpuset){0};
    for (int node = cpuset_next(&nodes, 0); node >= 0;
         node = cpuset_next(&nodes, node + 1)) {
        struct cpuset cpus;

        if ((rc = topology_node_cpus(machine->sysfs, node, &cpus)) < 0)
            return ct_fail(err, rc, "--numa-binding=cores: CPUs of NUMA node %d: %s",
                           node, strerror(-rc));
        cpuset_intersect(&cpus, machine->allowed);
        add_share(out, machine, &cpus, &share, &core);
    }
    cpuset_intersect(out, machine->allowed);
    return 0;
}

/* True when `a` comes before `b`: larger, or with the lower first CPU. */
static bool is_before(const struct cpuset *a, const struct cpuset *b)
{
    int difference = cpuset_count(a) - cpuset_count(b);

    return difference ? difference > 0 : cpuset_next(a, 0) < cpuset_next(b, 0);
}

/* Fills groups[], in order, with the parts of `cpus` that share a last cache. */
static int cache_groups(struct cpuset *groups, const struct cpuset *cpus,
                        const char *sysfs, int *count)
{
    struct cpuset seen = {0};

    *count = 0;
    for (int cpu = cpuset_next(cpus, 0); cpu >= 0; cpu = cpuset_next(cpus, cpu + 1)) {
        struct cpuset group;
        int at;
        int rc;

        if (cpuset_has(&seen, cpu))
            continue;
        if ((rc = topology_last_cache(sysfs, cpu, &group)) < 0)
            return rc;
        cpuset_add(&group, cpu);
        cpuset_intersect(&group, cpus);
        cpuset_unite(&seen, &group);
        for (at = (*count)++; at > 0 && is_before(&group, &groups[at - 1]); at--)
            groups[at] = groups[at - 1];
        groups[at] = group;
    }
    return 0;
}

static int complex_cpus(struct cpuset *cpus, const struct numa_machine *machine,
                        const struct spot *spot, struct ctrun_error *err)
{
    struct cpuset *groups = ct_zalloc_array((size_t)cpuset_count(cpus), sizeof *groups);
    int count;
    int rc = groups ? cache_groups(groups, cpus, machine->sysfs, &count) : -ENOMEM;

    if (rc == 0)
        *cpus = groups[spot->position % count];
    else
        (void)ct_fail(err, rc,
                      "--numa-binding=core-complex: caches of NUMA node %d: %s",
                      spot->node, strerror(-rc));
    free(groups);
    return rc;
}

int numa_cpus(struct cpuset *out, const struct numa_machine *machine,
              enum numa_mode mode, int local_rank, struct ctrun_error *err)
{
    struct spot spot;
    int rc;

    if (mode == NUMA_NONE) {
        *out = *machine->allowed;
        return 0;
    }
    if (mode == NUMA_CORES)
        return cores_cpus(out, machine, local_rank, err);
    if ((rc = find_spot(machine, local_rank, &spot, err)) < 0 ||
        (rc = node_cpus(out, machine, spot.node, err)) < 0)
        return rc;
    switch (mode) {
    case NUMA_NONE:
    case NUMA_CORES:
    case NUMA_NODE: return 0;
    case NUMA_SOCKET: return socket_cpus(out, machine, err);
    case NUMA_EXCLUSIVE: return exclusive_cpus(out, machine, &spot, err);
    case NUMA_CORE_COMPLEX: return complex_cpus(out, machine, &spot, err);
    }
    return 0;
}
