/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/region.h"

#include <errno.h>
#include <sys/mman.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/kernel.h"

enum {
    OFFSET_BITS = 44
};

/* A region is one block of memory with a part of `stride` bytes for each member, mapped as a whole
 * by all members. A place in a region is sent to others as (number of the region + 1, offset within
 * a part), because their maps begin at other addresses. */
static void unmap(const struct ct_regions *regions, const struct ct_region *region)
{
    if (region->base)
        munmap(region->base, region->stride * (size_t)regions->size);
}

void ct_regions_deinit(struct ct_regions *regions)
{
    for (size_t i = 0; i < regions->count; i++)
        unmap(regions, &regions->list[i]);
    free(regions->list);
}

int ct_regions_map(struct ct_regions *regions, int fd, size_t stride)
{
    size_t size = stride * (size_t)regions->size;
    struct ct_region *grown = ct_realloc_array(regions->list, regions->count + 1,
                                               sizeof *grown);
    unsigned char *base;

    if (!grown)
        return -ENOMEM;
    regions->list = grown;
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return -errno;
    /* Allocates the pages now: a lack of memory must be an error here, not a bus error later.
     * Kernels before 5.14 cannot do this; there the lack shows on first use. */
    if (madvise(base + (size_t)regions->me * stride, stride, CT_MADV_POPULATE_WRITE) <
            0 &&
        errno != EINVAL) {
        munmap(base, size);
        return -ENOMEM;
    }
    grown[regions->count++] = (struct ct_region){base, stride};
    return 0;
}

/* For a block that not all members could map: the next block gets its number on all members. */
void ct_regions_unmap_last(struct ct_regions *regions)
{
    unmap(regions, &regions->list[--regions->count]);
}

static unsigned char *part_of(const struct ct_region *region, int member)
{
    return region->base + (size_t)member * region->stride;
}

/* The entry stays, because others know its number and each member frees when it likes. Only our map
 * ends; another member that still reads our part has its own map. */
int ct_regions_unmap(struct ct_regions *regions, const void *data)
{
    for (size_t i = 0; i < regions->count; i++) {
        struct ct_region *region = &regions->list[i];

        if (!region->base || part_of(region, regions->me) != data)
            continue;
        unmap(regions, region);
        region->base = NULL;
        return 0;
    }
    return -ENOENT;
}

void *ct_regions_last(const struct ct_regions *regions)
{
    return part_of(&regions->list[regions->count - 1], regions->me);
}

/* 0: `data` is not completely inside a region, so it has to be copied. */
uint64_t ct_regions_find(const struct ct_regions *regions, const void *data,
                         size_t bytes)
{
    uintptr_t at = (uintptr_t)data;

    for (size_t i = 0; i < regions->count; i++) {
        const struct ct_region *region = &regions->list[i];
        uintptr_t own = (uintptr_t)part_of(region, regions->me);

        if (region->base && at >= own && at - own <= region->stride &&
            bytes <= region->stride - (at - own))
            return ((uint64_t)i + 1) << OFFSET_BITS | (at - own);
    }
    return 0;
}

/* All members have agreed on `place`, and each found its own data in that region: so it is mapped
 * here. */
unsigned char *ct_regions_at(const struct ct_regions *regions, uint64_t place,
                             int member)
{
    return part_of(&regions->list[(place >> OFFSET_BITS) - 1], member) +
           (place & CT_REGION_MAX_BYTES);
}
