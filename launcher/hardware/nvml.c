/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/nvml.h"

#include <dlfcn.h>
#include <errno.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/base/symbol.h"

static bool find_functions(struct nvml *nvml)
{
    const struct {
        const char *name;
        void *function;
        bool is_optional;
    } symbols[] = {
        {"nvmlInit_v2", &nvml->init, false},
        {"nvmlShutdown", &nvml->shutdown, false},
        {"nvmlErrorString", &nvml->error_text, false},
        {"nvmlSystemGetDriverVersion", &nvml->driver_version, false},
        {"nvmlDeviceGetCount_v2", &nvml->count, false},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml->by_index, false},
        {"nvmlDeviceGetHandleByUUID", &nvml->by_uuid, false},
        {"nvmlDeviceGetDeviceHandleFromMigDeviceHandle", &nvml->parent, true},
        {"nvmlDeviceGetName", &nvml->name, false},
        {"nvmlDeviceGetMemoryInfo", &nvml->memory, false},
        {"nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes, true},
        {"nvmlDeviceGetPciInfo_v3", &nvml->pci, false},
        {"nvmlDeviceGetUUID", &nvml->uuid, false},
        {"nvmlDeviceGetClockInfo", &nvml->clock, true},
        {"nvmlDeviceGetMaxClockInfo", &nvml->max_clock, true},
        {"nvmlDeviceGetCurrentClocksThrottleReasons", &nvml->slow_reasons, true},
        {"nvmlEventSetCreate", &nvml->create_events, true},
        {"nvmlDeviceRegisterEvents", &nvml->register_events, true},
        {"nvmlEventSetWait_v2", &nvml->wait_event, true},
    };
    bool is_whole = true;

    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        const bool is_there = ct_find_symbol(nvml->library, symbols[i].name,
                                             symbols[i].function);

        is_whole = is_whole && (is_there || symbols[i].is_optional);
    }
    return is_whole;
}

int nvml_open(struct nvml *nvml, char *why, size_t size)
{
    int rc = -ENOENT;

    *why = '\0';
    if (!(nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)))
        return -ENOENT;
    if (find_functions(nvml) && (rc = nvml->init()) != 0)
        (void)ct_format(why, size, "%s", nvml->error_text(rc));
    if (rc != 0)
        dlclose(nvml->library);
    return rc;
}

void nvml_close(struct nvml *nvml)
{
    (void)nvml->shutdown();
    dlclose(nvml->library);
}
