/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory of these GPUs is in use, and by which processes, as NVML tells it. */
#pragma once

#include <stdbool.h>

#include "launcher/hardware/gpus.h"
#include "launcher/hardware/nvml.h"

enum {
    GPU_MEMORY_HOLDERS_MAX = 32, /* of one GPU that are looked at */
    /* Less than that is the driver's own, which differs from time to time. */
    GPU_MEMORY_SLACK_MIB = 512,
};

struct gpu_memory {
    int count; /* GPUs that could be asked */
    struct gpu_memory_of {
        int gpu; /* in the list that was given */
        unsigned long long used;
        int holder_count;
        struct {
            unsigned pid;
            unsigned long long bytes; /* 0: not known */
        } holders[GPU_MEMORY_HOLDERS_MAX];
    } list[GPUS_MAX];
};

struct gpu_memory_held {
    int gpu;                  /* that most is held of, beyond what was before */
    unsigned long long bytes; /* so much */
    unsigned
        pid; /* who holds most of that and was not there before; 0: it cannot be seen */
};

void gpu_memory_read(struct gpu_memory *out, const struct nvml *nvml,
                     const struct gpus *gpus);
/* False: no more than before is in use anywhere. Pure. */
bool gpu_memory_find_held(struct gpu_memory_held *out, const struct gpu_memory *before,
                          const struct gpu_memory *now);
