/* SPDX-License-Identifier: Apache-2.0 */
/* What a server remembers of runs that it does not serve: those that it has forgotten, and those
 * that agents have reported (HELLO, RESUME). Such a run must not start again while workers of it
 * may live, and its generations continue. Pure. */
#pragma once

#include "rendezvous/round/round.h"

enum {
    /* Beyond, the entry that was used longest ago is dropped. */
    RUN_MEMORY_MAX = 256,
    /* Of a run whose entry is lost only this is kept, in a place that its id chooses: runs in the
     * same place wait for its workers, and others do not. */
    RUN_MEMORY_PLACES = 1024,
    /* They wait no longer than this: without a token anybody can choose a lease. */
    RUN_MEMORY_LOST_MAX_MS = 3600000,
    /* The same of a run that an agent without a token tells of. */
    RUN_MEMORY_REPORTED_MAX_MS = 300000,
};

struct run_memory_entry {
    struct ct_list node;
    char run_id[CT_RUN_ID_MAX];
    uint64_t instance;             /* the instance that was served here; 0: none */
    uint64_t generation;           /* the highest known one */
    uint32_t restarts;             /* restarts used by `instance` */
    uint32_t min_nodes, max_nodes; /* of `instance`: ctrunctl may have changed them */
    struct round_fault *
        faults; /* ROUND_FAULTS_MAX of `instance`; owned; NULL: no hardware has failed */
    uint64_t until_ms; /* its workers may live until then */
    uint64_t
        received_ms; /* when an agent last told of workers of an instance that is not ours;
                          0: none has */
};

struct run_memory_lost {
    uint64_t
        at_ms; /* when an entry was last lost for lack of room or memory; 0: never */
    uint64_t until_ms; /* the latest until_ms of such entries; 0: none */
};

struct run_memory {
    struct ct_list entries; /* by last use, the latest last */
    size_t count;
    struct run_memory_lost lost[RUN_MEMORY_PLACES];
};

void run_memory_init(struct run_memory *memory);
void run_memory_deinit(struct run_memory *memory);
/* Remembers a run that was served here and is now forgotten. */
void run_memory_keep(struct run_memory *memory, const char *run_id,
                     const struct round *round, uint64_t now_ms);
/* The round of a run that begins again continues what is remembered of it. */
void run_memory_restore(const struct run_memory_entry *entry, struct round *round);
/* Notes that an agent had workers of this run, of an instance that is not served here, and that
 * others may live until until_ms. */
void run_memory_note(struct run_memory *memory, const char *run_id, uint64_t generation,
                     uint64_t until_ms, uint64_t now_ms);
/* Notes that workers of the run that was served here may live until until_ms. */
void run_memory_outlive(struct run_memory *memory, const char *run_id,
                        uint64_t generation, uint64_t until_ms, uint64_t now_ms);
/* NULL: nothing is known of this run. */
const struct run_memory_entry *run_memory_find(const struct run_memory *memory,
                                               const char *run_id);
/* What was lost in the place of this run. */
const struct run_memory_lost *run_memory_find_lost(const struct run_memory *memory,
                                                   const char *run_id);
