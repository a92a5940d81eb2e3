/* SPDX-License-Identifier: Apache-2.0 */
/* Driver and NCCL as they are found at run time. NVML makes no CUDA context: looking takes no
 * memory of a GPU and disturbs nobody. */
#include <dlfcn.h>

#include "launcher/devices.h"
#include "launcher/doctor.h"
#include "worker_sdk/base/str.h"

enum {
    NVML_TEXT_MAX = 96,
    GPUS_SHOWN = 16
};

struct nvml_memory {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
};

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *version, unsigned length);
    int (*count)(unsigned *count);
    int (*device)(unsigned index, void **device);
    int (*name)(void *device, char *name, unsigned length);
    int (*memory)(void *device, struct nvml_memory *memory);
    const char *(*error_text)(int rc);
};

/* POSIX's way to turn a symbol into a function. */
static bool find(void *library, const char *name, void *function)
{
    return (*(void **)function = dlsym(library, name)) != NULL;
}

static bool load(void *library, struct nvml *nvml)
{
    return find(library, "nvmlInit_v2", &nvml->init) &&
           find(library, "nvmlShutdown", &nvml->shutdown) &&
           find(library, "nvmlSystemGetDriverVersion", &nvml->driver_version) &&
           find(library, "nvmlDeviceGetCount_v2", &nvml->count) &&
           find(library, "nvmlDeviceGetHandleByIndex_v2", &nvml->device) &&
           find(library, "nvmlDeviceGetName", &nvml->name) &&
           find(library, "nvmlDeviceGetMemoryInfo", &nvml->memory) &&
           find(library, "nvmlErrorString", &nvml->error_text);
}

static void look_at_device(struct doctor *doctor, const struct nvml *nvml,
                           unsigned index)
{
    struct nvml_memory memory = {0};
    struct doctor_finding *finding;
    char name[NVML_TEXT_MAX] = "unknown";
    char what[32];
    void *device;

    (void)ct_format(what, sizeof what, "GPU %u", index);
    if (nvml->device(index, &device) != 0 ||
        nvml->name(device, name, sizeof name) != 0 ||
        nvml->memory(device, &memory) != 0) {
        finding = doctor_add(doctor, DOCTOR_FAIL, what, "the driver cannot talk to it");
        doctor_set_fix(finding, "see nvidia-smi and dmesg | grep NVRM; leave it out by "
                                "CUDA_VISIBLE_DEVICES");
        return;
    }
    finding = doctor_add(doctor, DOCTOR_OK, what, "%s, %.1f of %.1f GiB in use", name,
                         (double)memory.used / (1u << 30),
                         (double)memory.total / (1u << 30));
    if (memory.used > memory.total / 10) {
        finding->level = DOCTOR_WARN;
        doctor_set_fix(finding, "somebody uses it: nvidia-smi shows who");
    }
}

static void look_by_nvml(struct doctor *doctor, const struct nvml *nvml)
{
    char version[NVML_TEXT_MAX] = "unknown";
    unsigned count = 0;
    const int rc = nvml->init();

    if (rc != 0) {
        doctor_set_fix(
            doctor_add(doctor, DOCTOR_FAIL, "GPU driver", "%s", nvml->error_text(rc)),
            "load the module that fits the library (after an update: reboot, or "
            "rmmod and modprobe nvidia)");
        return;
    }
    (void)nvml->driver_version(version, sizeof version);
    (void)nvml->count(&count);
    (void)doctor_add(doctor, DOCTOR_OK, "GPU driver", "%s, %u GPUs", version, count);
    for (unsigned i = 0; i < count && i < GPUS_SHOWN; i++)
        look_at_device(doctor, nvml, i);
    (void)nvml->shutdown();
}

/* False when there is no library. */
static bool read_nccl_version(char *dst, size_t size)
{
    void *library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
    int (*get_version)(int *version) = NULL;
    int version = 0;

    *dst = '\0';
    if (!library)
        return false;
    if (find(library, "ncclGetVersion", &get_version) && get_version(&version) == 0)
        (void)ct_format(dst, size, "%d.%d.%d", version / 10000, version / 100 % 100,
                        version % 100);
    dlclose(library);
    return true;
}

static void look_at_nccl(struct doctor *doctor, bool is_needed)
{
    char version[32];

    if (!read_nccl_version(version, sizeof version))
        /* PyTorch's wheels bring their own: it is no trouble for them. */
        (void)doctor_add(doctor, DOCTOR_OK, "NCCL",
                         is_needed ? "none in the library path (PyTorch brings its own)"
                                   : "none");
    else if (*version)
        (void)doctor_add(doctor, DOCTOR_OK, "NCCL", "%s", version);
}

void doctor_gpu_versions(char *driver, char *nccl, size_t size)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct nvml nvml;

    *driver = '\0';
    (void)read_nccl_version(nccl, size);
    if (library && load(library, &nvml) && nvml.init() == 0) {
        (void)nvml.driver_version(driver, (unsigned)size);
        (void)nvml.shutdown();
    }
    if (library)
        dlclose(library);
}

void doctor_gpus(struct doctor *doctor)
{
    const int nodes = devices_gpu_count(NULL);
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    struct nvml nvml;

    if (library && load(library, &nvml))
        look_by_nvml(doctor, &nvml);
    else if (nodes == 0)
        (void)doctor_add(doctor, DOCTOR_OK, "GPUs", "none");
    else
        doctor_set_fix(doctor_add(doctor, DOCTOR_FAIL, "GPUs",
                                  "%d in /dev, but no libnvidia-ml.so.1", nodes),
                       "install the driver's libraries, in a container its runtime "
                       "(docker --gpus all)");
    look_at_nccl(doctor, nodes > 0);
    if (library)
        dlclose(library);
}
