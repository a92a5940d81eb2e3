/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for one checkpoint: a file without a name, so that the agent can have it too. New pages
 * are written by system calls, because then the kernel need not clear them first. From the second
 * use on, when the next save reuses the memory, its pages are mapped: then a save is one pass that
 * copies and sums, past the caches, as fast as memcpy(). */
#pragma once

#include <stdint.h>

#include "worker_sdk/base/error.h"

struct ct_hold_memory {
    int fd; /* -1: none */
    uint8_t *map;
    size_t
        mapped; /* whole pages, all of them inside the file: no copy to them raises SIGBUS */
};
#define CT_HOLD_MEMORY_NONE                                                            \
    {                                                                                  \
        -1, NULL, 0                                                                    \
    }

/* Empty. -errno. */
int ct_hold_memory_open(struct ct_hold_memory *memory, struct ctrun_error *err);
/* Call it before the memory is used again: maps the pages of the file. If that fails, all is
 * written by system calls. */
void ct_hold_memory_map(struct ct_hold_memory *memory);
/* Writes bytes from `at` on and adds them to *crc. -errno. */
int ct_hold_memory_write(struct ct_hold_memory *memory, uint64_t at, const void *data,
                         size_t length, uint32_t *crc, struct ctrun_error *err);
/* Cuts the file to `bytes` and frees the memory after them. -errno. */
int ct_hold_memory_cut(struct ct_hold_memory *memory, uint64_t bytes,
                       struct ctrun_error *err);
/* Closes the memory in this process; other processes with the descriptor keep it. Accepts an empty
 * one. */
void ct_hold_memory_close(struct ct_hold_memory *memory);
