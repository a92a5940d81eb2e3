/* SPDX-License-Identifier: Apache-2.0 */
/* The distance of two PCI devices, from their paths in sysfs: each directory between the root
 * complex and the device is a bridge on the way to the device. Pure.
 *
 *     pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0
 *     root       root port    switch, up   switch, down device */
#pragma once

enum {
    PCI_PATH_MAX = 256
};

/* nvidia-smi's names for it, the nearest first. */
enum pci_link {
    PCI_LINK_PIX,  /* one bridge or switch between them, or none */
    PCI_LINK_PXB,  /* several, but not the root complex */
    PCI_LINK_PHB,  /* through the root complex that both are below */
    PCI_LINK_NODE, /* another root complex of the same NUMA node */
    PCI_LINK_SYS,  /* of another NUMA node */
};

struct pci_distance {
    enum pci_link link;
    int hops; /* directories not common to both; compared when `link` is equal */
};

/* The path of a device from the target of its link in sysfs: "../../devices/pci0000:15/.../
 * 0000:18:00.0/infiniband/mlx5_0" with below = "infiniband"; below NULL: the path must end at the
 * PCI address. 0, or -ENOENT: not on a PCI bus; -ENAMETOOLONG. */
int pci_path_of_link(char dst[PCI_PATH_MAX], const char *link, const char *below);
/* The last part of the path, a PCI address; empty when it is not one. */
const char *pci_path_address(const char *path);
/* The distance of two devices, from their paths and NUMA nodes. */
struct pci_distance pci_path_distance(const char *a, int node_a, const char *b,
                                      int node_b);
/* Negative: a is nearer; 0: as near. */
int pci_distance_compare(struct pci_distance a, struct pci_distance b);
const char *pci_link_name(enum pci_link link);
