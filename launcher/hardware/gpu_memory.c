/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/gpu_memory.h"

#include <string.h>

static int find_gpu(const struct gpus *gpus, const char *uuid)
{
    for (int i = 0; i < gpus->count; i++)
        if (*uuid && strcmp(gpus->uuid[i], uuid) == 0)
            return i;
    return -1;
}

/* Reads the processes of a GPU. The driver sets unknown sizes to all ones. */
static void read_holders(struct gpu_memory_of *out, const struct nvml *nvml,
                         void *device)
{
    struct nvml_process list[GPU_MEMORY_HOLDERS_MAX];
    unsigned count = GPU_MEMORY_HOLDERS_MAX;

    if (!nvml->processes || nvml->processes(device, &count, list) != 0 ||
        count > GPU_MEMORY_HOLDERS_MAX)
        return;
    for (unsigned i = 0; i < count; i++) {
        out->holders[i].pid = list[i].pid;
        out->holders[i].bytes = ~list[i].bytes ? list[i].bytes : 0;
    }
    out->holder_count = (int)count;
}

void gpu_memory_read(struct gpu_memory *out, const struct nvml *nvml,
                     const struct gpus *gpus)
{
    unsigned count = 0;

    memset(out, 0, sizeof *out);
    (void)nvml->count(&count);
    for (unsigned i = 0; i < count && out->count < GPUS_MAX; i++) {
        struct gpu_memory_of *of = &out->list[out->count];
        struct nvml_memory memory;
        char uuid[NVML_TEXT_MAX] = "";
        void *device;

        if (nvml->by_index(i, &device) != 0 ||
            nvml->uuid(device, uuid, sizeof uuid) != 0 ||
            (of->gpu = find_gpu(gpus, uuid)) < 0 || nvml->memory(device, &memory) != 0)
            continue;
        of->used = memory.used;
        of->total = memory.total;
        read_holders(of, nvml, device);
        out->count++;
    }
}

static const struct gpu_memory_of *find_of(const struct gpu_memory *memory, int gpu)
{
    for (int i = 0; i < memory->count; i++)
        if (memory->list[i].gpu == gpu)
            return &memory->list[i];
    return NULL;
}

static bool was_there(const struct gpu_memory_of *before, unsigned pid)
{
    for (int i = 0; i < before->holder_count; i++)
        if (before->holders[i].pid == pid)
            return true;
    return false;
}

static unsigned find_holder(const struct gpu_memory_of *before,
                            const struct gpu_memory_of *now)
{
    unsigned long long most = 0;
    unsigned pid = 0;

    for (int i = 0; i < now->holder_count; i++)
        if (!was_there(before, now->holders[i].pid) &&
            (pid == 0 || now->holders[i].bytes > most)) {
            most = now->holders[i].bytes;
            pid = now->holders[i].pid;
        }
    return pid;
}

bool gpu_memory_find_full(struct gpu_memory_held *out, const struct gpu_memory *memory)
{
    static const struct gpu_memory_of nothing;
    const struct gpu_memory_of *full = NULL;

    for (int i = 0; i < memory->count; i++)
        if (memory->list[i].used > memory->list[i].total / 2 &&
            (!full || memory->list[i].used > full->used))
            full = &memory->list[i];
    if (!full)
        return false;
    *out = (struct gpu_memory_held){
        .gpu = full->gpu, .bytes = full->used, .pid = find_holder(&nothing, full)};
    for (int i = 0; i < full->holder_count; i++)
        if (full->holders[i].pid == out->pid && full->holders[i].bytes > 0)
            out->bytes = full->holders[i].bytes;
    return true;
}

bool gpu_memory_find_held(struct gpu_memory_held *out, const struct gpu_memory *before,
                          const struct gpu_memory *now)
{
    const unsigned long long slack = (unsigned long long)GPU_MEMORY_SLACK_MIB << 20;

    *out = (struct gpu_memory_held){0};
    for (int i = 0; i < now->count; i++) {
        const struct gpu_memory_of *of = &now->list[i];
        const struct gpu_memory_of *then = find_of(before, of->gpu);

        if (!then || of->used <= then->used + slack ||
            of->used - then->used <= out->bytes)
            continue;
        *out = (struct gpu_memory_held){.gpu = of->gpu,
                                        .bytes = of->used - then->used,
                                        .pid = find_holder(then, of)};
    }
    return out->bytes > 0;
}
