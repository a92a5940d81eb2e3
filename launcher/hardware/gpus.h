/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of NVIDIA that a program started now would see, and where on the PCI bus they are.
 * Found without a CUDA context: the driver's /proc entries, else NVML, loaded when needed. */
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
/* Reads them here: the driver's entries or, where these tell nothing, NVML. */
void gpus_find(struct gpus *out);
/* Those that CUDA_VISIBLE_DEVICES (NULL: unset) lets through, in its order: numbers, UUIDs or
 * unique beginnings of them, MIG devices by their GPU. CUDA stops at the first bad entry;
 * here it is refused. 0, or a code. */
int gpus_select(struct gpus *out, const struct gpus *all, const char *visible,
                struct ctrun_error *err);
