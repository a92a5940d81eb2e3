/* SPDX-License-Identifier: Apache-2.0 */
/* CPUs, caches, NUMA nodes and PCI devices of a machine, read from a sysfs tree at each call.
 * `root` is "/sys", or a made-up tree in tests. Each function returns 0, or a negative errno
 * when the file is missing or malformed. */
#pragma once

#include "agent/process/cpuset.h"

/* All NUMA nodes: their numbers as a set. One node 0 on machines without NUMA. */
int topology_nodes(const char *root, struct cpuset *out);
int topology_node_cpus(const char *root, int node, struct cpuset *out);
/* The node of a PCI device such as "0000:17:00.0"; 0 when the firmware does not report it. */
int topology_pci_node(const char *root, const char *address, int *out);
/* The socket (physical package) of a CPU. */
int topology_package(const char *root, int cpu, int *out);
/* The hardware threads of the CPU's core, itself included; itself alone when unknown. */
void topology_siblings(const char *root, int cpu, struct cpuset *out);
/* The CPUs that share this CPU's highest data or unified cache. */
int topology_last_cache(const char *root, int cpu, struct cpuset *out);
/* The first line of a file below `root`, and the target of a link. 0, -errno or -ENAMETOOLONG. */
__attribute__((format(printf, 4, 5))) int
topology_read(char *dst, size_t size, const char *root, const char *format, ...);
__attribute__((format(printf, 4, 5))) int
topology_read_link(char *dst, size_t size, const char *root, const char *format, ...);
/* Physical cores with at least one CPU in the set. */
int topology_count_cores(const char *root, const struct cpuset *cpus);
