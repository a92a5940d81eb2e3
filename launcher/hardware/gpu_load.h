/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks of GPUs, why they are slow, and their errors, from NVML. Only one thread at a time may
 * call these functions; each call may hang if the driver hangs. */
#pragma once

#include <stdbool.h>

#include "launcher/hardware/gpus.h"
#include "launcher/hardware/nvml.h"

/* The GPUs passed to gpu_load_begin(), in that order. */
struct gpu_load {
    int count;
    struct gpu_load_of {
        void *device; /* NULL: not known to NVML */
        bool reports_xid;
        unsigned mhz, max_mhz;  /* SM clocks; 0: not known */
        unsigned slow;          /* nvmlClocksEventReasons: why mhz < max_mhz */
        unsigned long long xid; /* the last Xid since gpu_load_begin(); 0: none */
    } list[GPUS_MAX];
    void *events; /* NVML's event set; NULL: no GPU reports errors */
};

/* Finds the devices; only errors from now on are reported. */
void gpu_load_begin(struct gpu_load *load, const struct nvml *nvml,
                    const struct gpus *gpus);
/* Reads the clocks now and the errors since the last call. */
void gpu_load_read(struct gpu_load *load, const struct nvml *nvml);
