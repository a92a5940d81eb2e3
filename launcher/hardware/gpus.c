/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/gpus.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <unistd.h>

#include "launcher/hardware/devices.h"
#include "launcher/hardware/nvml.h"
#include "worker_sdk/base/str.h"

/* ---- The driver's entries ------------------------------------------------------------ */

static void copy_value(char *dst, size_t size, const char *line)
{
    const char *value = line + strcspn(line, ":");

    value += *value == ':';
    value += strspn(value, " \t");
    (void)ct_format(dst, size, "%.*s", (int)strcspn(value, "\n"), value);
}

/* gpus/0000:17:00.0/information has lines "GPU UUID: \t GPU-..." and "Device Minor: \t 0". */
static bool read_information(const char *path, char *uuid, size_t size, char *minor,
                             size_t minor_size)
{
    char line[256];
    FILE *file = fopen(path, "re");

    if (!file)
        return false;
    while (fgets(line, sizeof line, file)) {
        if (ct_starts_with(line, "GPU UUID:"))
            copy_value(uuid, size, line);
        else if (ct_starts_with(line, "Device Minor:"))
            copy_value(minor, minor_size, line);
    }
    fclose(file);
    return true;
}

/* Inserts a GPU so that the list stays in bus order. */
static void insert(struct gpus *out, const char *pci, const char *uuid)
{
    int at = out->count;

    if (at == GPUS_MAX)
        return;
    for (; at > 0 && strcmp(out->pci[at - 1], pci) > 0; at--) {
        memcpy(out->pci[at], out->pci[at - 1], sizeof out->pci[at]);
        memcpy(out->uuid[at], out->uuid[at - 1], sizeof out->uuid[at]);
    }
    (void)ct_copy(out->pci[at], sizeof out->pci[at], pci);
    (void)ct_copy(out->uuid[at], sizeof out->uuid[at], uuid);
    out->count++;
}

void gpus_read(struct gpus *out, const char *driver, const char *dev)
{
    char path[PATH_MAX];
    DIR *dir = NULL;

    *out = (struct gpus){0};
    if (ct_format(path, sizeof path, "%s/gpus", driver) < 0 || !(dir = opendir(path)))
        return;
    for (struct dirent *it; (it = readdir(dir));) {
        char uuid[48] = "";
        char minor[16] = "";
        char pci[16];

        if (it->d_name[0] == '.' || ct_copy(pci, sizeof pci, it->d_name) < 0 ||
            ct_format(path, sizeof path, "%s/gpus/%s/information", driver, pci) < 0 ||
            !read_information(path, uuid, sizeof uuid, minor, sizeof minor))
            continue;
        /* Skips a GPU that a cgroup hides or that this container was not given. */
        if (ct_format(path, sizeof path, "%s/nvidia%s", dev, minor) < 0 ||
            access(path, R_OK | W_OK) < 0)
            continue;
        for (char *p = pci; *p; p++)
            *p = (char)tolower((unsigned char)*p); /* lower case, as in sysfs */
        insert(out, pci, uuid);
    }
    closedir(dir);
}

/* ---- NVML ---------------------------------------------------------------------------- */

static bool add_device(struct gpus *out, const struct nvml *nvml, void *device)
{
    struct nvml_pci pci;
    char text[16];
    char uuid[96] = "";

    if (nvml->pci(device, &pci) != 0 || ct_format(text, sizeof text, "%04x:%02x:%02x.0",
                                                  pci.domain, pci.bus, pci.device) < 0)
        return false;
    (void)nvml->uuid(device, uuid, sizeof uuid);
    insert(out, text, uuid);
    return true;
}

void gpus_find(struct gpus *out)
{
    struct nvml nvml;
    char why[NVML_TEXT_MAX];
    unsigned count = 0;
    void *device;

    gpus_read(out, "/proc/driver/nvidia", "/dev");
    if (out->count > 0 || nvml_open(&nvml, why, sizeof why) != 0)
        return;
    if (nvml.count(&count) == 0)
        for (unsigned i = 0; i < count; i++)
            if (nvml.by_index(i, &device) == 0)
                (void)add_device(out, &nvml, device);
    nvml_close(&nvml);
}

/* The GPU that a MIG device is a part of, in *out (one entry). */
static bool ask_for_mig(struct gpus *out, const char *uuid)
{
    struct nvml nvml;
    char why[NVML_TEXT_MAX];
    void *mig;
    void *device;
    bool is_found;

    *out = (struct gpus){0};
    if (nvml_open(&nvml, why, sizeof why) != 0)
        return false;
    is_found = nvml.parent && nvml.by_uuid(uuid, &mig) == 0 &&
               nvml.parent(mig, &device) == 0 && add_device(out, &nvml, device);
    nvml_close(&nvml);
    return is_found;
}

/* ---- CUDA_VISIBLE_DEVICES ------------------------------------------------------------ */

/* Index of the only GPU whose UUID begins with `prefix`; -1: none, -2: several. */
static int find_uuid(const struct gpus *all, const char *prefix, size_t length)
{
    int found = -1;

    for (int i = 0; i < all->count; i++)
        if (strncasecmp(all->uuid[i], prefix, length) == 0)
            found = found == -1 ? i : -2;
    return found;
}

static int find_entry(const struct gpus *all, const char *entry, struct gpus *mig)
{
    uint64_t index;

    if (ct_parse_u64(entry, 0, GPUS_MAX - 1, &index) == 0)
        return index < (uint64_t)all->count ? (int)index : -1;
    if (ct_starts_with(entry, "MIG-GPU-")) { /* MIG-GPU-<uuid>/<instance>/<part> */
        const char *uuid = entry + strlen("MIG-");

        return find_uuid(all, uuid, strcspn(uuid, "/"));
    }
    if (ct_starts_with(entry, "MIG-")) {
        for (int i = 0; ask_for_mig(mig, entry) && i < all->count; i++)
            if (strcmp(all->pci[i], mig->pci[0]) == 0)
                return i;
        return -1;
    }
    return ct_starts_with(entry, "GPU-") ? find_uuid(all, entry, strlen(entry)) : -1;
}

int gpus_select(struct gpus *out, const struct gpus *all, const char *visible,
                struct ctrun_error *err)
{
    struct gpus mig;
    char entry[128];

    if (!visible) {
        *out = *all;
        return 0;
    }
    *out = (struct gpus){0};
    for (int i = 0; devices_visible_entry(visible, i, entry, sizeof entry) == 0 &&
                    entry[0] != '-' && out->count < GPUS_MAX;
         i++) {
        int at = find_entry(all, entry, &mig);

        if (at < 0)
            return ct_fail(err, -EINVAL,
                           "CUDA_VISIBLE_DEVICES=%s: '%s' %s the %d GPUs of this "
                           "machine",
                           visible, entry,
                           at == -2 ? "matches more than one of"
                                    : "was not found among",
                           all->count);
        memcpy(out->pci[out->count], all->pci[at], sizeof out->pci[at]);
        memcpy(out->uuid[out->count], all->uuid[at], sizeof out->uuid[at]);
        out->count++;
    }
    return 0;
}
