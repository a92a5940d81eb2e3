/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/devices.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "launcher/hardware/nvml.h"
#include "worker_sdk/base/str.h"

enum {
    GPUS_MAX = 1024
};

int devices_visible_entry(const char *visible, int index, char *dst, size_t size)
{
    const char *rest = visible;
    const char *entry;
    size_t length;

    while ((entry = ct_next_field(&rest, ',', &length)) && index-- > 0)
        ;
    if (!entry)
        return -ERANGE;
    entry = ct_trim(entry, &length);
    if (!length)
        return -ERANGE;
    return ct_format(dst, size, "%.*s", (int)length, entry) < 0 ? -ERANGE : 0;
}

/* CUDA takes a number, or a UUID with one of two prefixes; all else ends its list. */
static bool names_gpu(const char *entry)
{
    return (*entry >= '0' && *entry <= '9') || *entry == '+' ||
           ct_starts_with(entry, "GPU-") || ct_starts_with(entry, "MIG-");
}

int devices_visible_count(const char *visible)
{
    char entry[128];
    int count = 0;

    while (count < GPUS_MAX &&
           devices_visible_entry(visible, count, entry, sizeof entry) == 0 &&
           names_gpu(entry))
        count++;
    return count;
}

/* Counts /dev/nvidia0, /dev/nvidia1, ...; a container has only the nodes that it was given. */
static int count_device_nodes(void)
{
    DIR *dir = opendir("/dev");
    int count = 0;

    if (!dir)
        return 0;
    for (struct dirent *it; (it = readdir(dir));) {
        const char *digits = it->d_name + strlen("nvidia");

        if (ct_starts_with(it->d_name, "nvidia") && *digits &&
            strspn(digits, "0123456789") == strlen(digits) &&
            faccessat(dirfd(dir), it->d_name, R_OK | W_OK, 0) == 0)
            count++;
    }
    closedir(dir);
    return count;
}

/* Asks NVML, for a driver without numbered device nodes (WSL has /dev/dxg). */
static int ask_nvml(void)
{
    struct nvml nvml;
    char why[NVML_TEXT_MAX];
    unsigned count = 0;

    if (nvml_open(&nvml, why, sizeof why) != 0)
        return 0;
    if (nvml.count(&count) != 0)
        count = 0;
    nvml_close(&nvml);
    return count > GPUS_MAX ? GPUS_MAX : (int)count;
}

int devices_gpu_count(const char *visible)
{
    int count;

    if (visible)
        return devices_visible_count(visible);
    count = count_device_nodes();
    if (count == 0 && access("/dev/dxg", F_OK) == 0)
        count = ask_nvml();
    return count;
}

void devices_cpus(struct cpuset *out)
{
    *out = (struct cpuset){0};
    if (sched_getaffinity(0, sizeof out->sets, out->sets) < 0)
        *out = (struct cpuset){0};
}

int devices_cpu_count(void)
{
    struct cpuset cpus;
    int count;

    devices_cpus(&cpus);
    count = cpuset_count(&cpus);
    return count > 0 ? count : 1;
}

int devices_online_cpu_count(void)
{
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}
