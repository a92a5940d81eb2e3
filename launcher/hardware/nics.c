/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/nics.h"

#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include "launcher/hardware/topology.h"
#include "worker_sdk/base/str.h"

enum {
    PORTS_MAX = 4
};

const char *nic_kind_name(enum nic_kind kind)
{
    static const char *const names[] = {"InfiniBand", "RoCE", "Ethernet"};

    return names[kind];
}

/* Sets has_link when at least one port has a link, or no port's state can be read. */
static void read_ports(struct nic *nic, const char *sysfs)
{
    char text[64];
    bool is_known = false;
    bool is_up = false;

    nic->kind = NIC_INFINIBAND;
    for (int port = 1; port <= PORTS_MAX; port++) {
        if (topology_read(text, sizeof text, sysfs,
                          "class/infiniband/%s/ports/%d/state", nic->name, port) < 0)
            break;
        is_known = true;
        is_up |= ct_starts_with(text, "4:"); /* "4: ACTIVE" */
        if (topology_read(text, sizeof text, sysfs,
                          "class/infiniband/%s/ports/%d/link_layer", nic->name,
                          port) == 0 &&
            strcmp(text, "Ethernet") == 0)
            nic->kind = NIC_ROCE;
    }
    nic->has_link = is_up || !is_known;
}

static void read_interface(struct nic *nic, const char *sysfs)
{
    char text[64];

    nic->kind = NIC_ETHERNET;
    nic->has_link = topology_read(text, sizeof text, sysfs, "class/net/%s/operstate",
                                  nic->name) < 0 ||
                    strcmp(text, "down") != 0;
}

/* True when the list has a device of that PCI function: an Ethernet interface of a function that
 * speaks verbs is not a second device. */
static bool has_path(const struct nics *nics, const char *path)
{
    for (int i = 0; i < nics->count; i++)
        if (strcmp(nics->list[i].path, path) == 0)
            return true;
    return false;
}

static void add(struct nics *out, const char *sysfs, const char *class,
                const char *name)
{
    const bool is_verbs = strcmp(class, "infiniband") == 0;
    struct nic *nic = &out->list[out->count];
    char link[512];

    if (*name == '.' || out->count == NICS_MAX ||
        ct_copy(nic->name, sizeof nic->name, name) < 0 ||
        topology_read_link(link, sizeof link, sysfs, "class/%s/%s", class, name) < 0 ||
        pci_path_of_link(nic->path, link, class) < 0 ||
        (!is_verbs && has_path(out, nic->path)))
        return;
    if (topology_pci_node(sysfs, pci_path_address(nic->path), &nic->node) < 0)
        nic->node = 0;
    if (is_verbs)
        read_ports(nic, sysfs);
    else
        read_interface(nic, sysfs);
    out->count++;
}

static void read_class(struct nics *out, const char *sysfs, const char *class)
{
    char path[PATH_MAX];
    DIR *dir;

    if (ct_format(path, sizeof path, "%s/class/%s", sysfs, class) < 0 ||
        !(dir = opendir(path)))
        return;
    for (struct dirent *it; (it = readdir(dir));)
        add(out, sysfs, class, it->d_name);
    closedir(dir);
}

static int compare(const void *a, const void *b)
{
    const struct nic *one = a;
    const struct nic *other = b;
    const bool is_one_ethernet = one->kind == NIC_ETHERNET;
    const bool is_other_ethernet = other->kind == NIC_ETHERNET;

    return is_one_ethernet != is_other_ethernet ? is_one_ethernet - is_other_ethernet
                                                : strverscmp(one->name, other->name);
}

void nics_read(struct nics *out, const char *sysfs)
{
    *out = (struct nics){0};
    read_class(out, sysfs, "infiniband");
    read_class(out, sysfs, "net");
    qsort(out->list, (size_t)out->count, sizeof *out->list, compare);
}
