/* SPDX-License-Identifier: Apache-2.0 */
/* The NVIDIA GPUs that a program started now would see, and their PCI addresses. Found without a
 * CUDA context: from the driver's /proc entries, else from NVML, which is loaded when needed. */
#pragma once

#include "worker_sdk/base/error.h"

enum {
    GPUS_MAX = 64
};

struct gpus {
    int count;
    char pci[GPUS_MAX][16];  /* "0000:17:00.0" */
    char uuid[GPUS_MAX][48]; /* "GPU-...", empty when unknown */
};

/* All GPUs that may be opened, in bus order, from DRIVER/gpus (DRIVER: "/proc/driver/nvidia")
 * and DEV/nvidia<minor> ("/dev"). Count 0 when there is none. */
void gpus_read(struct gpus *out, const char *driver, const char *dev);
/* The GPUs of this machine, from the driver's entries or, if there are none, from NVML. */
void gpus_find(struct gpus *out);
/* The GPUs that CUDA_VISIBLE_DEVICES (NULL: unset) selects, in its order: numbers, UUIDs or unique
 * prefixes of UUIDs; for a MIG device, its GPU. CUDA stops at the first bad entry; this function
 * refuses the list. 0, or a code. */
int gpus_select(struct gpus *out, const struct gpus *all, const char *visible,
                struct ctrun_error *err);
