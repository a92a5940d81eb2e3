/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker may write to the console (--log-rate-limit): rate.h with a clock, for stdout and
 * stderr together, and one line every few seconds that reports how much was dropped. */
#pragma once

#include <stddef.h>

#include "agent/loop/loop.h"
#include "agent/output/rate.h"

struct throttle;

/* One stream's position in its line; zeroed at first. */
struct throttle_line {
    bool is_open; /* the last piece had no end */
    bool is_left_out;
};

/* NULL when memory is short. */
struct throttle *throttle_open(struct loop *loop, uint64_t bytes_per_s,
                               void (*report)(void *context, int rank, uint64_t lines,
                                              uint64_t bytes),
                               void *context, int rank);
/* The next piece of a stream (lines.h): false when it is dropped, as all of its line is.
 * `extra`: bytes that are printed with it. */
bool throttle_takes(struct throttle *throttle, struct throttle_line *line,
                    const char *piece, size_t length, size_t extra);
/* Reports dropped bytes now, if there are any. NULL is fine. */
void throttle_flush(struct throttle *throttle);
/* Reports the rest. NULL is fine. */
void throttle_close(struct throttle *throttle);
