/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a worker may use a GPU of this machine: an error of another job's GPU is none of its
 * own. */
#pragma once

#include "launcher/hardware/gpus.h"

/* 1 when CUDA_VISIBLE_DEVICES in `env` selects the GPU at the PCI address "0000:3b:00" from `all`, 0
 * when not, -ENODEV when that is not known. Pure. */
int own_gpu_select(const struct gpus *all, char *const *env, const char *pci);
/* The same for the GPUs that the driver reports; waits for it for a short time only. */
int own_gpu_is(char *const *env, const char *pci);
