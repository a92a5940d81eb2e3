/* SPDX-License-Identifier: Apache-2.0 */
/* What a server remembers of runs that it does not serve: those that it has forgotten, and those
 * that agents have told it of (HELLO, RESUME). Nobody founds such a run anew while workers of it
 * may live, and its generations continue. Pure. */
#pragma once

#include "worker_sdk/base/list.h"
#include "worker_sdk/wire/message.h"

enum {
    RUN_MEMORY_MAX = 256 /* then the one that was heard of longest ago makes room */
};

struct run_memory_entry {
    struct ct_list node;
    char run_id[CT_RUN_ID_MAX];
    uint64_t instance;   /* that was served here; 0: none was */
    uint64_t generation; /* the highest that is known */
    uint32_t restarts;   /* that `instance` has used */
    uint64_t
        received_ms; /* when an agent last told of workers of an instance that is not ours;
                          0: none has */
};

struct run_memory {
    struct ct_list entries; /* by when they were touched, the latest last */
    size_t count;
    uint64_t lost_ms; /* when an entry had to make room; 0: never */
};

void run_memory_init(struct run_memory *memory);
void run_memory_deinit(struct run_memory *memory);
/* A run that was served here is forgotten. */
void run_memory_keep(struct run_memory *memory, const char *run_id, uint64_t instance,
                     uint64_t generation, uint32_t restarts, uint64_t now_ms);
/* An agent had workers of this run, of an instance that is not served here. */
void run_memory_note(struct run_memory *memory, const char *run_id, uint64_t generation,
                     uint64_t now_ms);
/* NULL: nothing is known of it. */
const struct run_memory_entry *run_memory_find(const struct run_memory *memory,
                                               const char *run_id);
