/* SPDX-License-Identifier: Apache-2.0 */
/* A worker's record of its calls (wire/flight.h). It is not trusted: entries may be incomplete,
 * and any process may have written them. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/wire/flight.h"

/* One call; only fields that passed the checks are set. */
struct flight_call {
    uint64_t sequence; /* 0: a message */
    uint64_t count;
    uint64_t begin_ns;
    uint64_t end_ns; /* 0: under way */
    int group;       /* index in groups; -1: the group is not in the record any more */
    int result;
    char dtype[8];
    char name[CT_FLIGHT_NAME_MAX + 1];
};

struct flight_group {
    int size;
    char name[CT_FLIGHT_GROUP_MAX];
};

struct flight {
    int rank;       /* set by the caller */
    uint64_t total; /* number of calls begun since the start */
    int group_count;
    struct flight_group groups[CT_FLIGHT_GROUPS];
    int call_count;
    struct flight_call calls[CT_FLIGHT_ENTRIES]; /* oldest first */
};

/* 0; -EBADMSG when the bytes are no such record. */
int flight_decode(const void *bytes, size_t size, struct flight *out);

/* Keeps the last `most` calls, but at least one. */
void flight_keep(struct flight *flight, int most);
/* Writes all kept calls, one per line. now_ns: the present by ct_now_ns(). 0 or a negative
 * errno. */
int flight_format(struct ct_buf *out, const struct flight *flight, uint64_t now_ns);
/* The same for Chrome's trace viewer and Perfetto: a file is begin, then each record, then end. */
int flight_begin_trace(struct ct_buf *out);
int flight_add_trace(struct ct_buf *out, const struct flight *flight, uint64_t now_ns,
                     bool is_first);
int flight_end_trace(struct ct_buf *out);

/* How far a rank is in the group that it used last: the collective that it is in, and the last
 * one that it has completed. */
struct flight_place {
    int rank;
    char group[CT_FLIGHT_GROUP_MAX];
    struct flight_call in;     /* the oldest call under way; sequence 0: none */
    struct flight_call left;   /* sequence 0: none */
    struct flight_call failed; /* the first one behind `left` that has; likewise */
};
/* False: it has made no call on a group. */
bool flight_find_place(struct flight_place *out, const struct flight *flight);
/* "ranks 0, 1, 3: in all_reduce 51 (1000 f32) for 2.1 s", then the ranks that the others wait
 * for: a line for each set of ranks at the same place, into lines[i]; returns how many. places
 * are sorted by rank. */
enum {
    FLIGHT_LINES_MAX = 4,
    FLIGHT_LINE_MAX = 192
};
int flight_format_places(char lines[FLIGHT_LINES_MAX][FLIGHT_LINE_MAX],
                         const struct flight_place *places, int count, uint64_t now_ns);
