/* SPDX-License-Identifier: Apache-2.0 */
/* Which CPUs a worker is bound to: --numa-binding, as PyTorch counts. Worker i belongs to
 * accelerator i. Pure, but for the sysfs tree that it reads (topology.h).
 *
 *   node          all CPUs of the GPU's NUMA node
 *   socket        all CPUs of all nodes of that node's socket
 *   exclusive     a share of the node's cores of its own, split over the GPUs of the node;
 *                 the first ones get one more when it does not come out even
 *   core-complex  the CPUs behind one last-level cache of the node; the GPUs of a node take
 *                 turns, larger ones first
 *
 * always within the CPUs that this process may use. */
#pragma once

#include "agent/process/cpuset.h"
#include "worker_sdk/base/error.h"

enum numa_mode {
    NUMA_NONE,
    NUMA_NODE,
    NUMA_SOCKET,
    NUMA_EXCLUSIVE,
    NUMA_CORE_COMPLEX,
};

struct numa_machine {
    const char *sysfs;            /* "/sys" */
    const struct cpuset *allowed; /* what we may use */
    const char (*gpus)[16];       /* PCI addresses, in the order in which CUDA counts */
    int gpu_count;
};

/* The mode of that name; -EINVAL when there is none. */
int numa_parse_mode(const char *name, enum numa_mode *out);
/* The CPUs of worker `local_rank`. 0, or a code with the reason. */
int numa_cpus(struct cpuset *out, const struct numa_machine *machine,
              enum numa_mode mode, int local_rank, struct ctrun_error *err);
