/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/pci_path.h"

#include <errno.h>

#include "worker_sdk/base/str.h"

enum {
    SWITCH_HOPS = 4 /* a switch port and the device, on both sides */
};

/* Finds pciDDDD:BB in the link. Machines without a BIOS have directories before it:
 * platform/.../pci0000:00. */
static const char *find_root(const char *link)
{
    static const char root[] = "/pci";
    const char *found = strstr(link, "/devices/");

    found = found ? strstr(found, root) : NULL;
    return found ? found + 1 : NULL;
}

int pci_path_of_link(char dst[PCI_PATH_MAX], const char *link, const char *below)
{
    const char *path = find_root(link);
    char word[32];
    char *end;

    if (!path)
        return -ENOENT;
    if (ct_copy(dst, PCI_PATH_MAX, path) < 0)
        return -ENAMETOOLONG;
    if (!below)
        return 0;
    if (ct_format(word, sizeof word, "/%s/", below) < 0 || !(end = strstr(dst, word)))
        return -ENOENT;
    *end = '\0';
    if ((end = strstr(dst,
                      "/virtio"))) /* a paravirtual device is below its PCI function */
        *end = '\0';
    return 0;
}

const char *pci_path_address(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : "";
}

static int count_parts(const char *path)
{
    int count = *path != '\0';

    for (; *path; path++)
        count += *path == '/';
    return count;
}

static int count_common(const char *a, const char *b)
{
    const char *at_a = a;
    const char *at_b = b;
    int count = 0;

    for (;;) {
        size_t length_a, length_b;
        const char *part_a = ct_next_field(&at_a, '/', &length_a);
        const char *part_b = ct_next_field(&at_b, '/', &length_b);

        if (!part_a || !part_b || length_a != length_b ||
            memcmp(part_a, part_b, length_a) != 0)
            return count;
        count++;
    }
}

struct pci_distance pci_path_distance(const char *a, int node_a, const char *b,
                                      int node_b)
{
    const int common = count_common(a, b);
    struct pci_distance distance = {.hops = count_parts(a) + count_parts(b) -
                                            2 * common};

    if (common == 0)
        distance.link = node_a == node_b ? PCI_LINK_NODE : PCI_LINK_SYS;
    else if (common == 1)
        distance.link = PCI_LINK_PHB;
    else
        distance.link = distance.hops <= SWITCH_HOPS ? PCI_LINK_PIX : PCI_LINK_PXB;
    return distance;
}

int pci_distance_compare(struct pci_distance a, struct pci_distance b)
{
    return a.link != b.link ? (int)a.link - (int)b.link : a.hops - b.hops;
}

const char *pci_link_name(enum pci_link link)
{
    static const char *const names[] = {"PIX", "PXB", "PHB", "NODE", "SYS"};

    return names[link];
}
