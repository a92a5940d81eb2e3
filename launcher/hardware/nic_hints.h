/* SPDX-License-Identifier: Apache-2.0 */
/* Which network devices are nearest to each worker's GPU: for people (--dry-run), and for NCCL,
 * when --nic-affinity asks for it: NCCL_IB_HCA of each worker, unless the user has set it.
 *
 * The hint lists the devices at the smallest distance. InfiniBand or RoCE is used, whichever more
 * devices with a link have, and Ethernet only if the machine has neither. Of these, devices with a
 * link are used if there are any. */
#pragma once

#include "launcher/hardware/gpus.h"
#include "launcher/hardware/nics.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/error.h"

enum {
    NIC_HINT_MAX = 16,
    NIC_HINTS_TEXT_MAX = 1024
};

/* The devices of one worker. */
struct nic_hint {
    char gpu[16]; /* PCI address of the GPU */
    struct pci_distance distance;
    int count; /* 0: this machine has no such device */
    struct {
        char name[NICS_NAME_MAX];
        enum nic_kind kind;
        bool has_link;
    } near[NIC_HINT_MAX];
};

struct nic_hints {
    int count;             /* 0: not filled, or there are no GPUs */
    struct nic_hint *list; /* owned, one a worker */
    bool sets_env;         /* --nic-affinity */
};

/* Worker i has gpus->pci[first + i]. A worker without GPU gets no devices. 0, -ENOMEM. */
int nic_hints_fill(struct nic_hints *out, const char *sysfs, const struct gpus *gpus,
                   int first, int count);
void nic_hints_deinit(struct nic_hints *hints);

/* True when a worker's hint has a device that speaks verbs. */
bool nic_hints_has_hca(const struct nic_hints *hints);
/* Sets NCCL_IB_HCA of that worker, unless it is set or not wanted. 0, -ENOMEM. */
int nic_hints_set_env(const struct nic_hints *hints, struct ct_env *env, int worker);
/* "NCCL_IB_HCA: worker 0 mlx5_0 (PIX), worker 1 ..."; cut when long. False: nothing to say. */
bool nic_hints_format(char dst[NIC_HINTS_TEXT_MAX], const struct nic_hints *hints);
