/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a worker may use a GPU of this machine: an error of another job's GPU is none of its
 * own. */
#pragma once

#include "launcher/hardware/gpus.h"

/* 1 when CUDA_VISIBLE_DEVICES in `env` selects the GPU at the PCI address "0000:3b:00" from `all`, 0
 * when not, and for a GPU that `all` does not have; -ENODEV when that is not known. Pure. */
int own_gpu_select(const struct gpus *all, char *const *env, const char *pci);
/* Takes `now` for the GPUs of this machine, unless it has fewer: a GPU that fell off its bus is still
 * whose it was. Pure. */
void own_gpu_keep(struct gpus *kept, const struct gpus *now);
/* Asks the driver for its GPUs; waits for it for a short time only. */
void own_gpu_look(void);
/* The same as own_gpu_select() for the GPUs of the last looks. Looks again, every five seconds at most, when they
 * do not have that GPU. From one thread. */
int own_gpu_is(char *const *env, const char *pci);
