/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for one checkpoint: a file without a name, so that the agent can have it too. Pages that are new are
 * written by the kernel, which need not clear them first. From the second use on they are mapped, as long as the
 * memory goes from save to save: then a save is one pass that copies and sums up, past the caches, as fast as
 * memcpy(). */
#pragma once

#include <stdint.h>

#include "worker_sdk/base/error.h"

struct ct_hold_memory {
    int fd; /* -1: none */
    uint8_t *map;
    size_t
        mapped; /* whole pages, all of which the file has: no copy there can end in SIGBUS */
};
#define CT_HOLD_MEMORY_NONE                                                            \
    {                                                                                  \
        -1, NULL, 0                                                                    \
    }

/* Empty. -errno. */
int ct_hold_memory_open(struct ct_hold_memory *memory, struct ctrun_error *err);
/* Before it is used again: maps what the file has. Where that cannot be, all is written by the kernel. */
void ct_hold_memory_map(struct ct_hold_memory *memory);
/* Bytes from `at` on; *crc continues with them. -errno. */
int ct_hold_memory_write(struct ct_hold_memory *memory, uint64_t at, const void *data,
                         size_t length, uint32_t *crc, struct ctrun_error *err);
/* The file ends after `bytes`; what was behind them is free. -errno. */
int ct_hold_memory_cut(struct ct_hold_memory *memory, uint64_t bytes,
                       struct ctrun_error *err);
/* In this process; whoever has the descriptor keeps it. None is fine. */
void ct_hold_memory_close(struct ct_hold_memory *memory);
