/* SPDX-License-Identifier: Apache-2.0 */
/* Which CPUs a worker is bound to: --numa-binding, computed as in PyTorch. Worker i belongs to
 * accelerator i. Pure, except that it reads the sysfs tree (topology.h).
 *
 *   node          all CPUs of the GPU's NUMA node
 *   socket        all CPUs of all nodes of that node's socket
 *   exclusive     the node's cores are divided among the GPUs of the node; the first GPUs get
 *                 one core more if there is a remainder
 *   core-complex  the CPUs behind one last-level cache of the node; the GPUs of a node take
 *                 turns, larger ones first
 *   cores         no accelerator counts: the cores that this process may use, node after node, are
 *                 divided among all workers; the first ones get one more if there is a remainder.
 *                 PyTorch has no such mode
 *
 * Only CPUs that this process may use are taken. */
#pragma once

#include "agent/process/cpuset.h"
#include "worker_sdk/base/error.h"

enum numa_mode {
    NUMA_NONE,
    NUMA_NODE,
    NUMA_SOCKET,
    NUMA_EXCLUSIVE,
    NUMA_CORE_COMPLEX,
    NUMA_CORES,
};

struct numa_machine {
    const char *sysfs;            /* "/sys" */
    const struct cpuset *allowed; /* CPUs that this process may use */
    const char (*gpus)[16];       /* PCI addresses, in CUDA's order */
    int gpu_count;
    int workers; /* of this node */
};

/* The mode of that name; -EINVAL when there is none. */
int numa_parse_mode(const char *name, enum numa_mode *out);
/* The CPUs of worker `local_rank`. 0, or a code with the reason. */
int numa_cpus(struct cpuset *out, const struct numa_machine *machine,
              enum numa_mode mode, int local_rank, struct ctrun_error *err);
