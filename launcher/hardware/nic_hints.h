/* SPDX-License-Identifier: Apache-2.0 */
/* Which network devices are nearest to each worker's GPU: for people (--dry-run), and for NCCL,
 * when --nic-affinity asks for it: NCCL_IB_HCA of each worker, unless the user has set it.
 *
 * Of the devices with a link (all, when none has one) those at the smallest distance: InfiniBand or
 * RoCE, whichever most of them speak, and only where there is neither Ethernet. */
#pragma once

#include "launcher/hardware/gpus.h"
#include "launcher/hardware/nics.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/error.h"

enum {
    NIC_HINT_MAX = 16,
    NIC_HINTS_TEXT_MAX = 1024
};

/* Of one worker. */
struct nic_hint {
    char gpu[16]; /* PCI address */
    struct pci_distance distance;
    int count; /* 0: this machine has no such device */
    struct {
        char name[NICS_NAME_MAX];
        enum nic_kind kind;
        bool has_link;
    } near[NIC_HINT_MAX];
};

struct nic_hints {
    int count;             /* 0: nobody has looked, or there are no GPUs */
    struct nic_hint *list; /* owned, one a worker */
    bool sets_env;         /* --nic-affinity */
};

/* Worker i has gpus->pci[first + i]. Those that have none get none. 0, -ENOMEM. */
int nic_hints_fill(struct nic_hints *out, const char *sysfs, const struct gpus *gpus,
                   int first, int count);
void nic_hints_deinit(struct nic_hints *hints);

/* A worker has a device that speaks verbs near its GPU. */
bool nic_hints_has_hca(const struct nic_hints *hints);
/* NCCL_IB_HCA of that worker. 0, -ENOMEM. */
int nic_hints_set_env(const struct nic_hints *hints, struct ct_env *env, int worker);
/* "NCCL_IB_HCA: worker 0 mlx5_0 (PIX), worker 1 ..."; cut when long. False: nothing to say. */
bool nic_hints_format(char dst[NIC_HINTS_TEXT_MAX], const struct nic_hints *hints);
