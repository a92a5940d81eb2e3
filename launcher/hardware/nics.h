/* SPDX-License-Identifier: Apache-2.0 */
/* The network devices of a machine that are on its PCI buses, from a sysfs tree ("/sys", or a
 * made-up one in tests): devices that speak verbs (InfiniBand, RoCE), and the Ethernet interfaces
 * of other PCI functions. */
#pragma once

#include <stdbool.h>

#include "launcher/hardware/pci_path.h"

enum {
    NICS_MAX = 64,
    NICS_NAME_MAX = 64
};

enum nic_kind {
    NIC_INFINIBAND,
    NIC_ROCE,
    NIC_ETHERNET,
};

struct nic {
    char name[NICS_NAME_MAX]; /* mlx5_0, eth0 */
    enum nic_kind kind;
    bool has_link; /* a port has a link, or it is not known */
    int node;      /* NUMA */
    char path[PCI_PATH_MAX];
};

struct nics {
    int count;
    struct nic list[NICS_MAX]; /* by kind, then by name: mlx5_2 before mlx5_10 */
};

/* Leaves out devices that cannot be read. */
void nics_read(struct nics *out, const char *sysfs);
const char *nic_kind_name(enum nic_kind kind);
