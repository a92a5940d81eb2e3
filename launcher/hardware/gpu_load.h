/* SPDX-License-Identifier: Apache-2.0 */
/* How fast GPUs run, why not faster, and what errors they have had, as NVML tells it. One thread at a time; each call may
 * hang with the driver. */
#pragma once

#include <stdbool.h>

#include "launcher/hardware/gpus.h"
#include "launcher/hardware/nvml.h"

/* Of those that were given, in their order. */
struct gpu_load {
    int count;
    struct gpu_load_of {
        void *device; /* NULL: NVML does not have it */
        bool reports_xid;
        unsigned mhz, max_mhz;  /* of its SMs; 0: not known */
        unsigned slow;          /* nvmlClocksEventReasons: why it is below that */
        unsigned long long xid; /* the last one since gpu_load_begin(); 0: none */
    } list[GPUS_MAX];
    void *events; /* of their errors; NULL: none tells any */
};

/* Errors count from here. */
void gpu_load_begin(struct gpu_load *load, const struct nvml *nvml,
                    const struct gpus *gpus);
/* As they are now. */
void gpu_load_read(struct gpu_load *load, const struct nvml *nvml);
