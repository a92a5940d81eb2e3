/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine has for workers: CUDA devices and CPUs, as far as this process may
 * use them. */
#pragma once

#include <stddef.h>

#include "agent/process/cpuset.h"

/* CUDA devices that a program started now would see. CUDA_VISIBLE_DEVICES (`visible`,
 * NULL when unset) decides; without it the device nodes of the driver are counted, and
 * only where those tell nothing NVML is asked. 0 when there is none. */
int devices_gpu_count(const char *visible);
/* The size of this process's affinity mask, at least 1. */
int devices_cpu_count(void);
/* That mask itself; empty when the kernel does not tell. */
void devices_cpus(struct cpuset *out);
/* CPUs of the machine, whoever may use them. */
int devices_online_cpu_count(void);

/* Entries of a CUDA_VISIBLE_DEVICES list that CUDA accepts: it stops at the first bad
 * one. */
int devices_visible_count(const char *visible);
/* Copies entry `index` (blanks stripped) of such a list; 0, or -ERANGE when it is too
 * short. */
int devices_visible_entry(const char *visible, int index, char *dst, size_t size);
