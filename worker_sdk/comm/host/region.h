/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that all members of a host have mapped, each at an address of its own: member i's part
 * begins at base + i * stride. A place in it is one number that all members understand. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    CT_REGIONS_MAX = 65536, /* ctrun_group_alloc() calls of one group */
};
/* Of one member's part: a place has 44 bits for the offset, the region is above them. */
#define CT_REGION_MAX_BYTES ((UINT64_C(1) << 44) - 1)

struct ct_region {
    unsigned char *base; /* NULL: it was freed; its number is not used again */
    size_t stride;
};

/* Begin with size and me, the rest zero. */
struct ct_regions {
    int size; /* members */
    int me;
    struct ct_region *list; /* owned */
    size_t count;
};

/* Unmaps all. */
void ct_regions_deinit(struct ct_regions *regions);
/* Maps size * stride bytes of fd, which may be closed afterwards, and takes the pages of our
 * part. 0, -ENOMEM, or a negative errno. */
int ct_regions_map(struct ct_regions *regions, int fd, size_t stride);
/* Takes the last one back. */
void ct_regions_unmap_last(struct ct_regions *regions);
/* Unmaps the one whose part of ours begins at data, here only: 0, or -ENOENT. */
int ct_regions_unmap(struct ct_regions *regions, const void *data);
/* Our part of the last one. */
void *ct_regions_last(const struct ct_regions *regions);

/* The place of data of ours; 0 when it lies elsewhere. */
uint64_t ct_regions_find(const struct ct_regions *regions, const void *data,
                         size_t bytes);
/* What that member has at the same place. */
unsigned char *ct_regions_at(const struct ct_regions *regions, uint64_t place,
                             int member);
