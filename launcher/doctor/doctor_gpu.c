/* SPDX-License-Identifier: Apache-2.0 */
/* Driver, NCCL and cuDNN that are found at run time. */
#include <dlfcn.h>

#include "launcher/doctor/doctor.h"
#include "launcher/hardware/devices.h"
#include "launcher/hardware/nvml.h"
#include "worker_sdk/base/str.h"

enum {
    GPUS_SHOWN = 16
};

static void look_at_device(struct doctor *doctor, const struct nvml *nvml,
                           unsigned index)
{
    struct nvml_memory memory = {0};
    struct doctor_finding *finding;
    char name[NVML_TEXT_MAX] = "unknown";
    char what[32];
    void *device;
    int rc;

    (void)ct_format(what, sizeof what, "GPU %u", index);
    if ((rc = nvml->by_index(index, &device)) != 0 ||
        (rc = nvml->name(device, name, sizeof name)) != 0 ||
        (rc = nvml->memory(device, &memory)) != 0) {
        finding = doctor_add(doctor, DOCTOR_FAIL, what, "the driver reports: %s",
                             nvml->error_text(rc));
        doctor_set_fix(finding, "see nvidia-smi and dmesg | grep NVRM; leave this GPU "
                                "out with CUDA_VISIBLE_DEVICES");
        return;
    }
    finding = doctor_add(doctor, DOCTOR_OK, what, "%s, %.1f of %.1f GiB in use", name,
                         (double)memory.used / (1u << 30),
                         (double)memory.total / (1u << 30));
    if (memory.used > memory.total / 10)
        doctor_set_fix(finding, "another process uses it: nvidia-smi shows which");
}

static void look_at_driver(struct doctor *doctor, const struct nvml *nvml)
{
    char version[NVML_TEXT_MAX] = "unknown";
    unsigned count = 0;

    (void)nvml->driver_version(version, sizeof version);
    (void)nvml->count(&count);
    (void)doctor_add(doctor, DOCTOR_OK, "GPU driver", "%s, %u GPUs", version, count);
    for (unsigned i = 0; i < count && i < GPUS_SHOWN; i++)
        look_at_device(doctor, nvml, i);
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
    *(void **)&get_version = dlsym(library, "ncclGetVersion"); /* POSIX's conversion */
    if (get_version && get_version(&version) == 0)
        (void)ct_format(dst, size, "%d.%d.%d", version / 10000, version / 100 % 100,
                        version % 100);
    dlclose(library);
    return true;
}

static void look_at_nccl(struct doctor *doctor, bool is_needed)
{
    char version[32];

    if (!read_nccl_version(version, sizeof version))
        /* PyTorch's wheels have their own NCCL, so a missing library is no problem for them. */
        (void)doctor_add(doctor, DOCTOR_OK, "NCCL",
                         is_needed ? "none in the library path (PyTorch brings its own)"
                                   : "none");
    else if (*version)
        (void)doctor_add(doctor, DOCTOR_OK, "NCCL", "%s", version);
}

/* PyTorch's wheels have their own cuDNN, which is not found here. */
static void look_at_cudnn(struct doctor *doctor)
{
    void *library = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL);
    size_t (*get_version)(void) = NULL;
    size_t version, unit;

    if (!library)
        library = dlopen("libcudnn.so.8", RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        (void)doctor_add(doctor, DOCTOR_OK, "cuDNN",
                         "none in the library path: no ctrun-mnist on a GPU "
                         "(PyTorch brings its own)");
        return;
    }
    *(void **)&get_version = dlsym(library, "cudnnGetVersion"); /* POSIX's conversion */
    version = get_version ? get_version() : 0;
    unit = version >= 90000 ? 10000
                            : 1000; /* unit of the major number: since 9, and before */
    if (version > 0)
        (void)doctor_add(doctor, DOCTOR_OK, "cuDNN", "%zu.%zu.%zu", version / unit,
                         version % unit / 100, version % 100);
    else
        (void)doctor_add(doctor, DOCTOR_OK, "cuDNN", "of an unknown version");
    dlclose(library);
}

void doctor_gpu_versions(char *driver, char *nccl, size_t size)
{
    struct nvml nvml;
    char why[NVML_TEXT_MAX];

    *driver = '\0';
    (void)read_nccl_version(nccl, size);
    if (nvml_open(&nvml, why, sizeof why) != 0)
        return;
    (void)nvml.driver_version(driver, (unsigned)size);
    nvml_close(&nvml);
}

void doctor_gpus(struct doctor *doctor)
{
    const int nodes = devices_gpu_count(NULL);
    struct nvml nvml;
    char why[NVML_TEXT_MAX];
    const int rc = nvml_open(&nvml, why, sizeof why);

    if (rc == 0) {
        look_at_driver(doctor, &nvml);
        nvml_close(&nvml);
    } else if (rc > 0)
        doctor_set_fix(
            doctor_add(doctor, DOCTOR_FAIL, "GPU driver", "%s", why),
            "load the module that fits the library (after an update: reboot, or "
            "rmmod and modprobe nvidia)");
    else if (nodes == 0)
        (void)doctor_add(doctor, DOCTOR_OK, "GPUs",
                         doctor_can_load()
                             ? "none, and no usable libnvidia-ml.so.1 (NVML)"
                             : "none");
    else if (!doctor_can_load())
        (void)doctor_add(doctor, DOCTOR_OK, "GPUs",
                         "%d in /dev; a static program cannot ask the driver", nodes);
    else
        doctor_set_fix(doctor_add(doctor, DOCTOR_FAIL, "GPUs",
                                  "%d in /dev, but no usable libnvidia-ml.so.1 (NVML)",
                                  nodes),
                       "install the driver's libraries, in a container its runtime "
                       "(docker --gpus all)");
    if (doctor_can_load()) {
        look_at_nccl(doctor, nodes > 0);
        look_at_cudnn(doctor);
    } else
        (void)doctor_add(doctor, DOCTOR_OK, "NCCL, cuDNN",
                         "unknown: a static program cannot load them");
}
