/* SPDX-License-Identifier: Apache-2.0 */
/* Merges equal lines of several workers into one (--collapse). Pure: no clock, no output.
 *
 * A line waits for equal lines of the other workers, but not for longer than `delay_ms` and not
 * when more than `max_bytes` wait. Lines come out in the order in which the first of each came
 * in, and every worker's lines in that worker's order: the second "x" of one worker is never
 * merged with the first of another.
 *
 *     line_dedup_add() ... line_dedup_peek() -> print it -> line_dedup_pop() ... */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct line_dedup;

/* Borrowed until it is popped. */
struct line_dedup_line {
    const char *text;
    size_t length;
    int kind;
    const uint64_t *workers; /* bit i: worker i wrote it */
};

/* Workers are 0 to count - 1. NULL when memory is short. */
struct line_dedup *line_dedup_create(int count, size_t max_bytes, uint64_t delay_ms);
void line_dedup_destroy(struct line_dedup *dedup); /* NULL is fine */

/* How many workers can write at all: a line that so many workers wrote waits no longer. */
void line_dedup_set_expected(struct line_dedup *dedup, int expected);
/* A line of a worker; text is copied. Only lines of the same kind are merged. 0; -ENOBUFS: pop
 * some first; -ENOMEM. A line longer than max_bytes is accepted when no other line waits. */
int line_dedup_add(struct line_dedup *dedup, int worker, int kind, const char *text,
                   size_t length, uint64_t now_ms);
/* The first line, if its time has come; `is_all`: in any case. NULL: none. */
const struct line_dedup_line *line_dedup_peek(const struct line_dedup *dedup,
                                              uint64_t now_ms, bool is_all);
void line_dedup_pop(struct line_dedup *dedup);
/* When line_dedup_peek() will return a line; UINT64_MAX: no line waits. */
uint64_t line_dedup_wake_ms(const struct line_dedup *dedup);

/* "0-3,6" for bits 0 to 3 and 6, each plus `base`; "9 workers" when that does not fit. */
void line_dedup_format(char *dst, size_t size, const uint64_t *workers, int count,
                       unsigned base);
