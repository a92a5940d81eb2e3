/* SPDX-License-Identifier: Apache-2.0 */
/* AMD's GPUs, as ROCm's driver lists them. */
#pragma once

/* How many a ROCm program would see: the nodes of the driver's topology that compute and whose render
 * device may be opened, and no more than ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES list. `nodes` is
 * /sys/class/kfd/kfd/topology/nodes, `devices` is /dev/dri; tests pass other paths. */
int amd_gpus_count(const char *nodes, const char *devices, char *const *env);
