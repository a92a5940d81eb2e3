/* SPDX-License-Identifier: Apache-2.0 */
/* A driver's library with two GPUs. While FAKE_NVML_REFUSES is set, it does not start. The file
 * FAKE_NVML_HELD has "PID MIB": memory in use on the second GPU; without it only the driver's own
 * memory is in use. With the file FAKE_NVML_HOT the second GPU on the bus is too hot and has had
 * the error of the number in the file. 0: there is no error, and events are not supported; -2:
 * calls for a clock do not return; 79: later events fail. */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *mhz);
int nvmlDeviceGetMaxClockInfo(void *device, unsigned kind, unsigned *mhz);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits);
int nvmlEventSetCreate(void **set);
int nvmlDeviceRegisterEvents(void *device, unsigned long long kinds, void *set);
int nvmlEventSetWait_v2(void *set, struct nvml_event *out, unsigned timeout_ms);

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

/* Makes the file FAKE_NVML_ASKED. */
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

/* The number in FAKE_NVML_HOT for the hot GPU; -1: none. */
static int read_xid(const void *device)
{
    const char *path = getenv("FAKE_NVML_HOT");
    FILE *file = path && device == &gpus[0] ? fopen(path, "re") : NULL;
    int xid = -1;

    if (file && fscanf(file, "%d", &xid) != 1)
        xid = -1;
    if (file)
        fclose(file);
    return xid;
}

int nvmlDeviceGetClockInfo(void *device, unsigned kind, unsigned *mhz)
{
    while (read_xid(&gpus[0]) == -2)
        (void)pause();
    *mhz = read_xid(device) >= 0 ? 1200 : 1980;
    return kind == NVML_CLOCK_SM ? 0 : 2;
}

int nvmlDeviceGetMaxClockInfo(void *device, unsigned kind, unsigned *mhz)
{
    (void)device;
    *mhz = 1980;
    return kind == NVML_CLOCK_SM ? 0 : 2;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *bits)
{
    *bits = read_xid(device) >= 0 ? 0x40 : 0;
    return 0;
}

/* For each set: the error was returned. Another thread may still wait for its set. */
static atomic_bool sets[64];
static atomic_int set_count;

int nvmlEventSetCreate(void **set)
{
    *set = &sets[atomic_fetch_add(&set_count, 1) % 64];
    atomic_store((atomic_bool *)*set, false);
    return 0;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long kinds, void *set)
{
    (void)device;
    (void)set;
    return kinds == NVML_EVENT_XID && read_xid(&gpus[0]) != 0 ? 0 : 3;
}

int nvmlEventSetWait_v2(void *set, struct nvml_event *out, unsigned timeout_ms)
{
    if (timeout_ms > 0 || read_xid(&gpus[0]) <= 0)
        return NVML_TIMEOUT;
    if (atomic_exchange((atomic_bool *)set, true))
        return read_xid(&gpus[0]) == 79 ? 15
                                        : NVML_TIMEOUT; /* NVML_ERROR_GPU_IS_LOST */
    *out = (struct nvml_event){.device = &gpus[0],
                               .kind = NVML_EVENT_XID,
                               .data = (unsigned long long)read_xid(&gpus[0])};
    return 0;
}
