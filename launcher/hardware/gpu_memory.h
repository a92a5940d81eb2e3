/* SPDX-License-Identifier: Apache-2.0 */
/* How much GPU memory is in use, and by which processes, from NVML. */
#pragma once

#include <stdbool.h>

#include "launcher/hardware/gpus.h"
#include "launcher/hardware/nvml.h"

enum {
    GPU_MEMORY_HOLDERS_MAX = 32, /* processes of a GPU */
    /* Smaller differences are ignored: the driver's own memory use varies. */
    GPU_MEMORY_SLACK_MIB = 512,
};

struct gpu_memory {
    int count; /* GPUs that NVML could read */
    struct gpu_memory_of {
        int gpu; /* index in the given list */
        unsigned long long used, total;
        int holder_count;
        struct {
            unsigned pid;
            unsigned long long bytes; /* 0: not known */
        } holders[GPU_MEMORY_HOLDERS_MAX];
    } list[GPUS_MAX];
};

struct gpu_memory_held {
    int gpu;                  /* the GPU with the most memory above `before` */
    unsigned long long bytes; /* above `before` */
    unsigned
        pid; /* the new process that holds most of these bytes; 0: it cannot be seen */
};

/* False: of no GPU more than half of the memory is in use. Else the process that holds most of it, on
 * the GPU that has most in use; bytes: of that process, or all that are in use. Pure. */
bool gpu_memory_find_full(struct gpu_memory_held *out, const struct gpu_memory *memory);
void gpu_memory_read(struct gpu_memory *out, const struct nvml *nvml,
                     const struct gpus *gpus);
/* False: no GPU has more memory in use than before. Pure. */
bool gpu_memory_find_held(struct gpu_memory_held *out, const struct gpu_memory *before,
                          const struct gpu_memory *now);
