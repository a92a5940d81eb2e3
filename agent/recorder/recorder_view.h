/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one process by torch's flight recorder: its last call in each process group, and the
 * calls in which it waits. */
#pragma once

#include <stdint.h>

enum {
    RECORDER_NAME_MAX = 48,
    RECORDER_SIZES_MAX = 96,
    RECORDER_RECENT_MAX = 16,
    RECORDER_GROUPS_MAX = 64 /* more are left out: what is not known proves nothing */
};

/* One collective, send or receive; op[0] 0: none. Texts are plain. */
struct recorder_call {
    /* The same on all ranks of the group, different for each recorder; empty for a send or receive,
     * whose numbers are those of its pair. */
    char group[RECORDER_NAME_MAX];
    char title[RECORDER_NAME_MAX];  /* title of the group: "default_pg"; may be empty */
    int64_t number;                 /* number of the call in its group */
    char op[RECORDER_NAME_MAX];     /* "gloo:all_reduce" */
    char sizes[RECORDER_SIZES_MAX]; /* input sizes: "Float[3,4] Long[2]" */
    uint64_t entered_ns;            /* wall clock */
};

struct recorder_group {
    char name[RECORDER_NAME_MAX];
    int64_t entered; /* number of the last call; 0: none */
};

struct recorder_view {
    int group_count;
    struct recorder_group groups[RECORDER_GROUPS_MAX];
    struct recorder_call oldest; /* the oldest call that is not complete */
    struct recorder_call newest; /* of all */
    int recent_count;
    struct recorder_call
        recent[RECORDER_RECENT_MAX]; /* the last ones, complete or not */
};

/* Adds the groups and calls of `other`; oldest and newest are those of both. */
void recorder_view_add(struct recorder_view *view, const struct recorder_view *other);
/* The last call in that group; -1: the process is not known to be in the group. */
int64_t recorder_view_find(const struct recorder_view *view, const char *group);

/* That call, if it is among the last ones; else NULL. Borrowed. */
const struct recorder_call *recorder_view_recent(const struct recorder_view *view,
                                                 const char *group, int64_t number);
