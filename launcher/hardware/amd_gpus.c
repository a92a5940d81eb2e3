/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/amd_gpus.h"

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include "launcher/hardware/devices.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    PROPERTIES_MAX = 4096 /* some 30 lines "name number" */
};

static unsigned long read_number(const char *text, const char *key)
{
    const char *at = ct_small_file_find(text, key);

    return at ? strtoul(at, NULL, 10) : 0;
}

/* A node that is a CPU has no SIMD units. A container has only the render devices that it was given. */
static bool is_usable(const char *node, const char *nodes, const char *devices)
{
    char path[PATH_MAX], text[PROPERTIES_MAX];

    return ct_format(path, sizeof path, "%s/%s/properties", nodes, node) >= 0 &&
           ct_small_file_read(text, sizeof text, path) >= 0 &&
           read_number(text, "simd_count ") > 0 &&
           ct_format(path, sizeof path, "%s/renderD%lu", devices,
                     read_number(text, "drm_render_minor ")) >= 0 &&
           access(path, R_OK | W_OK) == 0;
}

int amd_gpus_count(const char *nodes, const char *devices, char *const *env)
{
    static const char *const lists[] = {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"};
    DIR *dir = opendir(nodes);
    int count = 0;

    if (!dir)
        return 0;
    for (struct dirent *it; (it = readdir(dir));)
        count += it->d_name[0] != '.' && is_usable(it->d_name, nodes, devices);
    closedir(dir);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *list = ct_env_find(env, lists[i]);
        const int listed = list ? devices_visible_count(list) : count;

        count = listed < count ? listed : count;
    }
    return count;
}
