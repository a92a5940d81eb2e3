/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/own_gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent/loop/blocking_call.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/env.h"

enum {
    OWN_GPU_MS = 500 /* a broken GPU may block its driver */
};

int own_gpu_select(const struct gpus *all, char *const *env, const char *pci)
{
    const size_t length = strlen(pci);
    struct gpus own;

    if (all->count == 0 ||
        gpus_select(&own, all, ct_env_find(env, "CUDA_VISIBLE_DEVICES"), NULL) < 0)
        return -ENODEV;
    for (int i = 0; i < own.count; i++)
        if (strncasecmp(own.pci[i], pci, length) == 0 && own.pci[i][length] == '.')
            return 1;
    return 0;
}

static void read_all(void *job)
{
    gpus_read(job, "/proc/driver/nvidia", "/dev");
}

int own_gpu_is(char *const *env, const char *pci)
{
    static struct blocking_lane lane = {.needs_thread = true};
    struct gpus *all = ct_zalloc(sizeof *all);
    int rc;

    if (!all || blocking_call_in(&lane, read_all, free, all, OWN_GPU_MS) < 0)
        return -ENODEV; /* the call frees them */
    rc = own_gpu_select(all, env, pci);
    free(all);
    return rc;
}
