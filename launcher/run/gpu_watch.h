/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of this node's workers, for --stragglers: how fast they run, and their errors. The driver may hang, so only
 * a thread calls it, one at a time, and what that one uses is its own as well as ours. NVML is opened by the first look
 * on a machine that has GPUs, for good. */
#pragma once

#include "agent/watch/rank_load.h"

struct gpu_watch;

/* `visible` is CUDA_VISIBLE_DEVICES, copied; NULL: it is not set. Worker i has GPU first + i of those, or the only one.
 * NULL: out of memory. One thread uses it. */
struct gpu_watch *gpu_watch_create(const char *visible, int first);
/* NULL is fine. Waits for nobody. */
void gpu_watch_destroy(struct gpu_watch *watch);
/* What the last look has seen, once, of the GPU of each of `count` workers; zeros: it is not known, or that look is not
 * back. Begins the next one. NULL is fine: nothing is known. Does not block. */
void gpu_watch_look(struct gpu_watch *watch, struct rank_gpu *out, int count);
