/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of this node's workers, for --stragglers: how fast they run, and their errors. The
 * driver may hang, so only a separate thread calls the driver, one thread at a time. The thread
 * and the agent share struct gpu_watch; the last of them frees it. The first look opens NVML, if
 * there are GPUs, and NVML stays open. */
#pragma once

#include "agent/watch/rank_load.h"

struct gpu_watch;

/* `visible` is CUDA_VISIBLE_DEVICES, copied; NULL: not set. Worker i has GPU first + i of that
 * list, or its only GPU. Returns NULL when out of memory. Only one thread may call these
 * functions. */
struct gpu_watch *gpu_watch_create(const char *visible, int first);
/* NULL is fine. Does not wait for a running look. */
void gpu_watch_destroy(struct gpu_watch *watch);
/* Returns the results of the last look for the GPUs of `count` workers, each result once, and
 * starts the next look. Zeros: not known, or the last look still runs. NULL is fine: zeros. Does
 * not block. */
void gpu_watch_look(struct gpu_watch *watch, struct rank_gpu *out, int count);
