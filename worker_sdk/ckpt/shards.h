/* SPDX-License-Identifier: Apache-2.0 */
/* One save of a sharded checkpoint, in two halves:
 *
 *     shards_plan.c   the call: the ranks tell each other what they have, rank 0 says who writes what
 *     shards.c        the call, or a thread: the shard, then (rank 0) the manifest, then the old ones go
 *
 * After every step in which a rank may fail all ranks agree on one outcome, so that no rank waits
 * for one that gave up. The group is used by one thread at a time: the call waits for the thread
 * of the save before. */
#pragma once

#include <pthread.h>

#include "worker_sdk/ckpt/copy.h"
#include "worker_sdk/ckpt/plan.h"

enum {
    CT_SHARDS_TAG_MAX = 9,
    CT_SHARDS_VALUES = 4
};

/* What every rank tells all ranks: its result, and numbers whose meaning depends on the step. */
struct ct_shards_word {
    int64_t code; /* 0, or what failed */
    uint64_t values[CT_SHARDS_VALUES];
    char text[CTRUN_ERROR_TEXT_MAX];
};

struct ct_shards_save {
    uint64_t step;
    char
        tag[CT_SHARDS_TAG_MAX]; /* of this attempt: its files have names of their own */
    struct ctrun_tensor *tensors; /* owned; what this rank writes */
    size_t count;
    struct ctrun_metadata *metadata; /* owned; of rank 0 */
    size_t metadata_count;
    struct ct_plan plan; /* of rank 0: the pieces of all */
    uint64_t begin_ns, write_ns, bytes;
    int rc;
    struct ctrun_error err;
};

struct ctrun_shards {
    char *directory;
    struct ctrun_group *group; /* NULL with one rank */
    int rank, size;
    struct ctrun_shards_options options;
    struct ctrun_shards_stats stats;
    struct ct_shards_word *words; /* a word of each rank */
    uint64_t *lengths;            /* of each rank's list, while it is planned */
    struct ct_shards_save save;
    pthread_t thread; /* has words, save and group while is_writing */
    bool is_writing;
    struct ct_copy copy; /* what the thread writes */
};

/* All ranks get the failure of the lowest rank that failed; else 0, and words has the values of
 * all ranks. */
int ct_shards_agree(struct ctrun_shards *shards, int rc, const uint64_t *values,
                    struct ctrun_error *err);
/* *flags, allocated (free() it): one for each of `tensors`, 1 where this rank writes it. Fills save.tag and, on
 * rank 0, save.plan. Collective. rc: what was wrong with the arguments of this rank. */
int ct_shards_plan(struct ctrun_shards *shards, uint8_t **flags, int rc,
                   const struct ctrun_tensor *tensors, size_t count,
                   struct ctrun_error *err);
