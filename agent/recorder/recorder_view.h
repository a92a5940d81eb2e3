/* SPDX-License-Identifier: Apache-2.0 */
/* What the flight recorder of torch says of one process: how far it is in each process group, and what
 * it waits for. */
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
    char group
        [RECORDER_NAME_MAX]; /* the same on all its ranks, another one for each recorder */
    char title
        [RECORDER_NAME_MAX]; /* of the group, for people: "default_pg"; may be empty */
    int64_t number;          /* of the call in its group */
    char op[RECORDER_NAME_MAX];     /* "gloo:all_reduce" */
    char sizes[RECORDER_SIZES_MAX]; /* "Float[3,4] Long[2]" of what goes in */
    uint64_t entered_ns;            /* wall clock */
};

struct recorder_group {
    char name[RECORDER_NAME_MAX];
    int64_t entered; /* number of the last call; 0: none */
};

struct recorder_view {
    int group_count;
    struct recorder_group groups[RECORDER_GROUPS_MAX];
    struct recorder_call oldest; /* of those that are not complete */
    struct recorder_call newest; /* of all */
    int recent_count;
    struct recorder_call
        recent[RECORDER_RECENT_MAX]; /* the last ones, complete or not */
};

/* Both; a call that is not complete in either is not. */
void recorder_view_add(struct recorder_view *view, const struct recorder_view *other);
/* The last call of that group; -1: it is not known to be in it. */
int64_t recorder_view_find(const struct recorder_view *view, const char *group);

/* That call, of the last ones; NULL: it is none of them. Borrowed. */
const struct recorder_call *recorder_view_recent(const struct recorder_view *view,
                                                 const char *group, int64_t number);
