/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/gpu_watch.h"

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/loop/blocking_call.h"
#include "launcher/hardware/devices.h"
#include "launcher/hardware/gpu_load.h"
#include "worker_sdk/base/alloc.h"

struct gpu_watch {
    int first;
    pthread_mutex_t lock; /* protects `users` to `list` */
    int users;            /* the creator, and a running look() */
    bool is_looking;
    bool has_none; /* no GPU, or no NVML: look() is not called again */
    int count;     /* new entries of `list`; 0: none */
    struct rank_gpu list[GPUS_MAX];

    /* Used only by look(). */
    bool has_begun;
    char *visible; /* owned; NULL: not set */
    struct nvml nvml;
    struct gpu_load load;
};

/* Called with the lock held; unlocks it. Frees `watch` after the last user. */
static void leave(struct gpu_watch *watch)
{
    const bool is_last = --watch->users == 0;

    (void)pthread_mutex_unlock(&watch->lock);
    if (!is_last)
        return;
    (void)pthread_mutex_destroy(&watch->lock);
    free(watch->visible);
    free(watch);
}

/* ---- The thread -------------------------------------------------------------------------- */

static void begin(struct gpu_watch *watch)
{
    char why[NVML_TEXT_MAX];
    struct gpus all, gpus;

    watch->has_begun = true;
    if (watch->visible && devices_visible_count(watch->visible) == 0)
        return;
    gpus_find(&all);
    if (all.count > 0 && gpus_select(&gpus, &all, watch->visible, NULL) == 0 &&
        gpus.count > 0 && nvml_open(&watch->nvml, why, sizeof why) == 0)
        gpu_load_begin(&watch->load, &watch->nvml, &gpus);
}

static void fill(struct rank_gpu *out, const struct gpu_load_of *of)
{
    *out = (struct rank_gpu){.mhz = of->mhz, .max_mhz = of->max_mhz, .slow = of->slow};
    if (of->xid > 0 && of->xid <= INT_MAX)
        out->xid = (int)of->xid; /* even if reporting has stopped since */
    else if (of->reports_xid)
        out->xid = RANK_GPU_NO_XID;
}

static void *look(void *argument)
{
    struct gpu_watch *watch = argument;

    if (!watch->has_begun)
        begin(watch);
    if (watch->load.count > 0)
        gpu_load_read(&watch->load, &watch->nvml);
    (void)pthread_mutex_lock(&watch->lock);
    for (int i = 0; i < watch->load.count; i++)
        fill(&watch->list[i], &watch->load.list[i]);
    watch->count = watch->load.count;
    watch->has_none = watch->count == 0;
    watch->is_looking = false;
    leave(watch);
    return NULL;
}

/* ---- The agent --------------------------------------------------------------------------- */

struct gpu_watch *gpu_watch_create(const char *visible, int first)
{
    struct gpu_watch *watch = ct_zalloc(sizeof *watch);

    if (!watch)
        return NULL;
    watch->first = visible && devices_visible_count(visible) == 1 ? 0 : first;
    watch->users = 1;
    if ((visible && !(watch->visible = ct_strdup(visible))) ||
        pthread_mutex_init(&watch->lock, NULL) != 0) {
        free(watch->visible);
        free(watch);
        return NULL;
    }
    return watch;
}

void gpu_watch_destroy(struct gpu_watch *watch)
{
    if (!watch)
        return;
    (void)pthread_mutex_lock(&watch->lock);
    leave(watch);
}

void gpu_watch_look(struct gpu_watch *watch, struct rank_gpu *out, int count)
{
    bool is_idle;

    memset(out, 0, (size_t)count * sizeof *out);
    if (!watch)
        return;
    (void)pthread_mutex_lock(&watch->lock);
    for (int i = 0; i < count && watch->first + i < watch->count; i++)
        out[i] = watch->list[watch->first + i];
    watch->count = 0;
    is_idle = !watch->is_looking && !watch->has_none;
    watch->is_looking |= is_idle;
    watch->users += is_idle;
    (void)pthread_mutex_unlock(&watch->lock);
    if (!is_idle || blocking_call_start(look, watch) == 0)
        return;
    (void)pthread_mutex_lock(&watch->lock);
    watch->is_looking = false;
    leave(watch);
}
