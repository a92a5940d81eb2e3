/* SPDX-License-Identifier: Apache-2.0 */
/* The place of a process in the world when a group is opened, and the store functions that a group
 * needs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worker_sdk/include/ctrun.h"

enum {
    CT_GROUP_MEMBERS_MAX = 4096, /* ranks of one group */
    CT_BOOTSTRAP_KEY_MAX = 128,  /* bytes of a key, NUL included */
};

/* The functions of a store, shared by all ranks, that a group needs. Every call blocks until
 * deadline_ms (monotonic, base/clock.h) at most and returns 0, CTRUN_E_TIMEOUT (the store stays
 * usable), or another negative code. */
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

/* Where members of a group that is open leave notes for each other: short texts under keys of the
 * store. Any thread, as long as the session is open. A call waits a second or two at most, and
 * then fails: who gives a note up is no worse off than without a board. read NULL: there is none. */
enum {
    CT_NOTE_MAX = 640 /* NUL included */
};
struct ct_board {
    void *context;
    /* 0 or negative, as all three where they fail. */
    int (*put)(void *context, const char *key, const char *text);
    /* Only if the key is not there yet. *first: what it holds then. */
    int (*put_first)(void *context, const char *key, const char *text,
                     char first[CT_NOTE_MAX]);
    /* 1, or 0: the key is not there; -EAGAIN: another thread is asking. */
    int (*read)(void *context, const char *key, char text[CT_NOTE_MAX]);
};

/* Called every CT_SLICE_MS of a wait; a negative code ends the wait. Never blocks. */
enum {
    CT_SLICE_MS = 20
};
struct ct_watch {
    int (*check)(void *context, struct ctrun_error *err);
    void *context;
};

/* Whether ranks of the world are lost; called as a watch is. `losses` ranks were lost when the
 * group was opened: the group fails when another rank is lost, even if that rank is no member, so
 * that all ranks come to ctrun_group_shrink(). The loss of another node does not end a group whose
 * members are all on this node. */
struct ct_loss_watch {
    int (*check)(void *context, uint32_t losses, bool leaves_node,
                 struct ctrun_error *err);
    void *context;
    uint32_t losses;
    bool leaves_node; /* the group has members on other nodes; set by comm.c */
    bool sees_ranks;  /* also told of single ranks, not of nodes only */
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
    /* The ranks that are left in the world, ascending; NULL: all. epoch counts the changes. */
    const int *ranks;
    int rank_count;
    uint32_t epoch;
    bool is_new;    /* this rank joins others and does not have their state yet */
    bool takes_all; /* ct_group_shrink() takes in new ranks, too */
    const struct ctrun_group *old;    /* set by ct_group_shrink() */
    const struct ctrun_group *parent; /* set by ct_group_split(), as backend.h says */
    int color;
    /* These three and epoch make the group's name: the same on all ranks, and never used before in
     * this store. sequence counts the groups that this process began to open, failed ones included,
     * but for those that failed before the store was used: such a call may be repeated. Kept for
     * the call. */
    uint64_t generation;
    uint64_t restart_count;
    _Atomic uint64_t *sequence;
    const char *key;               /* a name instead of these three; NULL: none */
    struct ct_bootstrap bootstrap; /* borrowed for the call; unused in a world of one */
    struct ct_board board;         /* kept */
    /* Any thread. check NULL: nobody reports losses. This node has the ranks local_first to
     * local_first + local_count - 1. */
    struct ct_loss_watch losses;
    int local_first;
    int local_count;
    /* NULL: find out which ranks share memory. Otherwise ranks with equal text share memory (for
     * tests, or to divide a host). */
    const char *host_id;
    /* nccl: 1 + the number of the device, which becomes the current one in this thread; 0: the
     * current device. */
    int device;
};
