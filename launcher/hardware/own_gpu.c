/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/own_gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent/loop/blocking_call.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/env.h"

enum {
    OWN_GPU_MS = 500, /* a broken GPU may block its driver */
    OWN_GPU_AGAIN_MS = 5000
};

/* The list that had the most GPUs: the numbers of CUDA_VISIBLE_DEVICES count in it, also when the driver has
 * lost one since. */
static struct gpus known;
static uint64_t looked_ms; /* 0: not yet */

static bool has(const struct gpus *list, const char *pci)
{
    const size_t length = strlen(pci);

    for (int i = 0; i < list->count; i++)
        if (strncasecmp(list->pci[i], pci, length) == 0 && list->pci[i][length] == '.')
            return true;
    return false;
}

int own_gpu_select(const struct gpus *all, char *const *env, const char *pci)
{
    struct gpus own;

    if (all->count > 0 && !has(all, pci))
        return 0; /* hidden from us */
    if (all->count == 0 ||
        gpus_select(&own, all, ct_env_find(env, "CUDA_VISIBLE_DEVICES"), NULL) < 0)
        return -ENODEV;
    return has(&own, pci);
}

void own_gpu_keep(struct gpus *kept, const struct gpus *now)
{
    if (now->count >= kept->count)
        *kept = *now;
}

static void read_all(void *job)
{
    gpus_read(job, "/proc/driver/nvidia", "/dev");
}

void own_gpu_look(void)
{
    static struct blocking_lane lane = {.needs_thread = true};
    struct gpus *all = ct_zalloc(sizeof *all);

    looked_ms = ct_now_ms();
    if (!all || blocking_call_in(&lane, read_all, free, all, OWN_GPU_MS) < 0)
        return; /* the call frees them */
    own_gpu_keep(&known, all);
    free(all);
}

int own_gpu_is(char *const *env, const char *pci)
{
    if (!has(&known, pci) &&
        (looked_ms == 0 || ct_now_ms() - looked_ms >= OWN_GPU_AGAIN_MS))
        own_gpu_look();
    return own_gpu_select(&known, env, pci);
}
