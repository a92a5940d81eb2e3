/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that all members of a host have mapped, each at its own address: member i's part begins at
 * base + i * stride. A place in this memory is one number that all members understand. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    CT_REGIONS_MAX = 65536, /* ctrun_group_alloc() calls of one group */
};
/* Size of one member's part: a place has 44 bits for the offset and the region's number above
 * them. */
#define CT_REGION_MAX_BYTES ((UINT64_C(1) << 44) - 1)

struct ct_region {
    unsigned char *base; /* NULL: freed; its number is not used again */
    size_t stride;
};

/* Starts as zeros except size and me. */
struct ct_regions {
    int size; /* members */
    int me;
    struct ct_region *list; /* owned */
    size_t count;
};

/* Unmaps all. */
void ct_regions_deinit(struct ct_regions *regions);
/* Maps size * stride bytes of fd, which may be closed afterwards, and allocates the pages of our
 * part. 0, -ENOMEM, or a negative errno. */
int ct_regions_map(struct ct_regions *regions, int fd, size_t stride);
/* Unmaps the last region and frees its number. */
void ct_regions_unmap_last(struct ct_regions *regions);
/* Unmaps the region whose own part begins at data, in this process only: 0, or -ENOENT. */
int ct_regions_unmap(struct ct_regions *regions, const void *data);
/* Our part of the last region. */
void *ct_regions_last(const struct ct_regions *regions);

/* The place of our own data; 0 if they are in no region. */
uint64_t ct_regions_find(const struct ct_regions *regions, const void *data,
                         size_t bytes);
/* That member's data at the same place. */
unsigned char *ct_regions_at(const struct ct_regions *regions, uint64_t place,
                             int member);
