/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA devices and CPUs of this machine that this process may use. */
#pragma once

#include <stddef.h>

#include "agent/process/cpuset.h"

/* Number of CUDA devices that a program started now would see: the entries of
 * CUDA_VISIBLE_DEVICES (`visible`, NULL: unset); without it the driver's device nodes, and
 * if there are none, what NVML counts. */
int devices_gpu_count(const char *visible);
/* The size of this process's affinity mask, at least 1. */
int devices_cpu_count(void);
/* The affinity mask itself; empty when it cannot be read. */
void devices_cpus(struct cpuset *out);
/* Number of online CPUs of the machine, also those that this process may not use. */
int devices_online_cpu_count(void);

/* Number of entries of a CUDA_VISIBLE_DEVICES list that CUDA accepts: CUDA stops at the
 * first bad entry. */
int devices_visible_count(const char *visible);
/* Copies entry `index` (blanks stripped) of such a list; 0, or -ERANGE when it is too
 * short. */
int devices_visible_entry(const char *visible, int index, char *dst, size_t size);
