/* SPDX-License-Identifier: Apache-2.0 */
/* Where a process stands when a group is opened, and what the group needs of a store. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/include/ctrun.h"

enum {
    CT_GROUP_MEMBERS_MAX = 4096, /* ranks of one group */
    CT_BOOTSTRAP_KEY_MAX = 128,  /* bytes of a key, NUL included */
};

/* What a group needs of a store that all ranks share. Every call blocks until deadline_ms
 * (monotonic, base/clock.h) at most and returns 0, CTRUN_E_TIMEOUT (the store stays usable),
 * or another negative code. */
struct ct_bootstrap {
    void *context; /* first argument of each call */
    int (*set)(void *context, const char *key, const void *value, size_t length,
               uint64_t deadline_ms, struct ctrun_error *err);
    /* Waits until key exists. *value is allocated: the caller frees it. */
    int (*get)(void *context, const char *key, void **value, size_t *length,
               uint64_t deadline_ms, struct ctrun_error *err);
    /* Waits until key exists. */
    int (*wait)(void *context, const char *key, uint64_t deadline_ms,
                struct ctrun_error *err);
};

/* Asked about every CT_SLICE_MS of a wait: may end it with a negative code. Never blocks. */
enum {
    CT_SLICE_MS = 20
};
struct ct_watch {
    int (*check)(void *context, struct ctrun_error *err);
    void *context;
};

/* Whether others of the world are lost; asked as a watch is. `losses` ranks were lost when the group was
 * opened: it fails of one that was lost since, whoever its members are, so that all ranks come to
 * ctrun_group_shrink(). A lost node is of no concern to a group that keeps to its own. */
struct ct_loss_watch {
    int (*check)(void *context, uint32_t losses, bool leaves_node,
                 struct ctrun_error *err);
    void *context;
    uint32_t losses;
    bool leaves_node; /* the group's; comm.c fills it in */
    bool sees_ranks;  /* not nodes alone */
};

static inline int ct_loss_check(const struct ct_loss_watch *watch,
                                struct ctrun_error *err)
{
    return watch->check
               ? watch->check(watch->context, watch->losses, watch->leaves_node, err)
               : 0;
}

/* Where this process stands in the world when a group is opened. */
struct ct_group_place {
    int rank;
    int world_size;
    /* The ranks that are left of it, ascending; NULL: all. epoch counts the times that this changed. */
    const int *ranks;
    int rank_count;
    uint32_t epoch;
    bool is_new; /* this one joins others, or was to, and has nothing of their state */
    bool takes_all;                /* ct_group_shrink() takes in those who do so, too */
    const struct ctrun_group *old; /* ct_group_shrink() fills it in */
    /* These three and epoch name the group: the same on all ranks, and never used before in this store.
     * sequence counts the groups that this session has set out to open, failed ones included:
     * ct_group_open() raises it once the arguments are right, so that a call that is refused
     * at once may be repeated. Kept for the call. */
    uint64_t generation;
    uint64_t restart_count;
    uint64_t *sequence;
    const char *key;               /* a name instead of these three; NULL: none */
    struct ct_bootstrap bootstrap; /* borrowed for the call; unused in a world of one */
    /* Any thread. No check: nobody tells. The ranks of this node are `local_count` from `local_first` on. */
    struct ct_loss_watch losses;
    int local_first;
    int local_count;
    /* NULL: find out which ranks share memory. Else ranks with equal text do (tests; or to cut
     * a host in parts). */
    const char *host_id;
    /* nccl: 1 + the number of the device, which is made current in this thread; 0: the current device. */
    int device;
};
