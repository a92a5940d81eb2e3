/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/hardware/nic_hints.h"

#include <errno.h>
#include <limits.h>

#include "launcher/hardware/topology.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

static const char variable[] = "NCCL_IB_HCA";

/* ---- Finding ----------------------------------------------------------------------------- */

struct spot {
    char path[PCI_PATH_MAX];
    int node;
};

/* InfiniBand and RoCE cannot talk to each other, so all workers get the same kind: the one that
 * more devices with a link have. */
static enum nic_kind common_kind(const struct nics *nics)
{
    int lead = 0; /* InfiniBand devices minus RoCE devices */

    for (int i = 0; i < nics->count; i++)
        if (nics->list[i].has_link && nics->list[i].kind != NIC_ETHERNET)
            lead += nics->list[i].kind == NIC_INFINIBAND ? 1 : -1;
    return lead < 0 ? NIC_ROCE : NIC_INFINIBAND;
}

/* Only devices of the lowest class found on the machine are compared by distance. */
static int class_of(const struct nic *nic, enum nic_kind common)
{
    const int kind = nic->kind == NIC_ETHERNET ? 2 : nic->kind != common;

    return 2 * kind + !nic->has_link;
}

static int best_class(const struct nics *nics, enum nic_kind common)
{
    int best = INT_MAX;

    for (int i = 0; i < nics->count; i++)
        if (class_of(&nics->list[i], common) < best)
            best = class_of(&nics->list[i], common);
    return best;
}

static void take(struct nic_hint *out, const struct nic *nic)
{
    if (out->count == NIC_HINT_MAX)
        return;
    (void)ct_copy(out->near[out->count].name, NICS_NAME_MAX, nic->name);
    out->near[out->count].kind = nic->kind;
    out->near[out->count++].has_link = nic->has_link;
}

/* Finds the devices for one GPU; false when the GPU's PCI path cannot be read. */
static bool find_hint(struct nic_hint *out, const char *sysfs, const char *gpu,
                      const struct nics *nics)
{
    const enum nic_kind common = common_kind(nics);
    const int best = best_class(nics, common);
    struct spot spot = {.node = 0};
    char link[512];

    *out = (struct nic_hint){0};
    (void)ct_copy(out->gpu, sizeof out->gpu, gpu);
    if (topology_read_link(link, sizeof link, sysfs, "bus/pci/devices/%s", gpu) < 0 ||
        pci_path_of_link(spot.path, link, NULL) < 0)
        return false;
    if (topology_pci_node(sysfs, gpu, &spot.node) < 0)
        spot.node = 0;
    for (int i = 0; i < nics->count; i++) {
        const struct nic *nic = &nics->list[i];
        const struct pci_distance distance = pci_path_distance(spot.path, spot.node,
                                                               nic->path, nic->node);
        const int order = out->count ? pci_distance_compare(distance, out->distance)
                                     : -1;

        if (class_of(nic, common) != best || order > 0)
            continue;
        if (order < 0) {
            out->count = 0;
            out->distance = distance;
        }
        take(out, nic);
    }
    return true;
}

int nic_hints_fill(struct nic_hints *out, const char *sysfs, const struct gpus *gpus,
                   int first, int count)
{
    struct nics *nics = ct_zalloc(sizeof *nics);

    out->list = ct_zalloc_array((size_t)count, sizeof *out->list);
    if (!nics || !out->list) {
        free(nics);
        return -ENOMEM;
    }
    nics_read(nics, sysfs);
    for (out->count = 0; out->count < count; out->count++)
        if (first + out->count < gpus->count)
            (void)find_hint(&out->list[out->count], sysfs,
                            gpus->pci[first + out->count], nics);
    free(nics);
    return 0;
}

void nic_hints_deinit(struct nic_hints *hints)
{
    free(hints->list);
    *hints = (struct nic_hints){0};
}

/* ---- Telling ----------------------------------------------------------------------------- */

/* True when the nearest devices speak verbs: Ethernet interfaces are no HCA. */
static bool has_hca(const struct nic_hint *hint)
{
    return hint->count > 0 && hint->near[0].kind != NIC_ETHERNET;
}

bool nic_hints_has_hca(const struct nic_hints *hints)
{
    for (int i = 0; i < hints->count; i++)
        if (has_hca(&hints->list[i]))
            return true;
    return false;
}

int nic_hints_set_env(const struct nic_hints *hints, struct ct_env *env, int worker)
{
    char text[NIC_HINT_MAX * NICS_NAME_MAX + 2];

    if (!hints->sets_env || worker >= hints->count || !has_hca(&hints->list[worker]) ||
        ct_env_get(env, variable))
        return 0;
    (void)ct_copy(text, sizeof text, "="); /* "=": exact names, not prefixes */
    for (int i = 0; i < hints->list[worker].count; i++)
        (void)ct_append(text, sizeof text, "%s%s", i ? "," : "",
                        hints->list[worker].near[i].name); /* fits */
    return ct_env_set(env, variable, text);
}

static void add_one(char dst[NIC_HINTS_TEXT_MAX], const struct nic_hint *hint,
                    int worker)
{
    (void)ct_append(dst, NIC_HINTS_TEXT_MAX, "worker %d ", worker);
    for (int i = 0; i < hint->count; i++)
        (void)ct_append(dst, NIC_HINTS_TEXT_MAX, "%s%s", i ? "+" : "",
                        hint->near[i].name);
    (void)ct_append(dst, NIC_HINTS_TEXT_MAX, " (%s)",
                    pci_link_name(hint->distance.link));
}

bool nic_hints_format(char dst[NIC_HINTS_TEXT_MAX], const struct nic_hints *hints)
{
    bool has_any = false;

    (void)ct_format(dst, NIC_HINTS_TEXT_MAX, "%s: ", variable);
    for (int i = 0; i < hints->count; i++) {
        if (!has_hca(&hints->list[i]))
            continue;
        if (has_any)
            (void)ct_append(dst, NIC_HINTS_TEXT_MAX, ", ");
        add_one(dst, &hints->list[i], i); /* cut is fine */
        has_any = true;
    }
    return has_any;
}
