/* SPDX-License-Identifier: Apache-2.0 */
/* How far two PCI devices are from each other, by where sysfs has them: each directory below the
 * root complex is a bridge that what goes there passes. Pure.
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
    int hops; /* directories that are not common: fewer is nearer, for equal links */
};

/* The path of a device from the target of its link in sysfs: "../../devices/pci0000:15/.../
 * 0000:18:00.0/infiniband/mlx5_0" with below = "infiniband". Nothing may be below when that is
 * NULL. 0, or -ENOENT: it is on no PCI bus; -ENAMETOOLONG. */
int pci_path_of_link(char dst[PCI_PATH_MAX], const char *link, const char *below);
/* The last part, a PCI address; empty when it is none. */
const char *pci_path_address(const char *path);
/* Of two paths, and the NUMA nodes of their devices. */
struct pci_distance pci_path_distance(const char *a, int node_a, const char *b,
                                      int node_b);
/* Negative: a is nearer; 0: as near. */
int pci_distance_compare(struct pci_distance a, struct pci_distance b);
const char *pci_link_name(enum pci_link link);
