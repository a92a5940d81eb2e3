/* SPDX-License-Identifier: Apache-2.0 */
/* A driver's library with two GPUs, which refuses while FAKE_NVML_REFUSES is set. What the file FAKE_NVML_HELD says, "PID
 * MIB", is in use on the second one; without it nothing but the driver's own. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "launcher/hardware/nvml.h"

#pragma GCC visibility push(default)

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int rc);
int nvmlSystemGetDriverVersion(char *version, unsigned size);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetName(void *device, char *name, unsigned size);
int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *memory);
int nvmlDeviceGetPciInfo_v3(void *device, struct nvml_pci *out);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                            struct nvml_process *list);
int nvmlDeviceGetUUID(void *device, char *text, unsigned size);

static struct gpu {
    unsigned bus;
    const char *uuid;
} gpus[] = {{0x81, "GPU-b"}, {0x17, "GPU-a"}};

int nvmlInit_v2(void)
{
    return getenv("FAKE_NVML_REFUSES") ? 9 : 0;
}

int nvmlShutdown(void)
{
    return 0;
}

const char *nvmlErrorString(int rc)
{
    return rc == 9 ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    return snprintf(version, size, "550.1") > 0 ? 0 : 1;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &gpus[index];
    return index < 2 ? 0 : 2;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    (void)uuid;
    (void)device;
    return 6;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    (void)device;
    return snprintf(name, size, "Fake GPU") > 0 ? 0 : 1;
}

static bool read_held(const void *device, unsigned *pid, unsigned long long *mib)
{
    const char *path = getenv("FAKE_NVML_HELD");
    FILE *file = path && device == &gpus[1] ? fopen(path, "re") : NULL;
    const bool is_held = file && fscanf(file, "%u %llu", pid, mib) == 2;

    if (file)
        fclose(file);
    return is_held;
}

int nvmlDeviceGetMemoryInfo(void *device, struct nvml_memory *memory)
{
    unsigned long long mib;
    unsigned pid;

    *memory = (struct nvml_memory){.total = 80ull << 30, .used = 1ull << 30};
    if (read_held(device, &pid, &mib))
        memory->used += mib << 20;
    return 0;
}

/* The file FAKE_NVML_ASKED is there from the first time on. */
static void note_asked(void)
{
    const char *path = getenv("FAKE_NVML_ASKED");
    FILE *file = path ? fopen(path, "we") : NULL;

    if (file)
        fclose(file);
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count,
                                            struct nvml_process *list)
{
    unsigned long long mib;
    unsigned pid;

    *count = 0;
    note_asked();
    if (read_held(device, &pid, &mib))
        list[(*count)++] = (struct nvml_process){.pid = pid, .bytes = mib << 20};
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct nvml_pci *out)
{
    *out = (struct nvml_pci){.bus = ((struct gpu *)device)->bus};
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size)
{
    return snprintf(text, size, "%s", ((struct gpu *)device)->uuid) > 0 ? 0 : 1;
}
