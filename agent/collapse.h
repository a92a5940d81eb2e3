/* SPDX-License-Identifier: Apache-2.0 */
/* Lines that several workers write alike, as one (--collapse). Pure: no clock, no output.
 *
 * A line waits for its like from the other workers, but not for longer than `delay_ms` and not
 * when more than `max_bytes` wait. Lines come out in the order in which the first of each came
 * in, and every worker's lines in that worker's order: the second "x" of one worker is never
 * taken for the first of another.
 *
 *     collapse_add() ... collapse_peek() -> print it -> collapse_pop() ...
 */
#ifndef AGENT_COLLAPSE_H
#define AGENT_COLLAPSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct collapse;

/* Borrowed until it is popped. */
struct collapse_line {
    const char *text;
    size_t length;
    int kind;
    const uint64_t *workers; /* bit i: worker i wrote it */
};

/* Workers are 0 to count - 1. NULL when memory is short. */
struct collapse *collapse_create(int count, size_t max_bytes, uint64_t delay_ms);
void collapse_destroy(struct collapse *collapse); /* NULL is fine */

/* So many workers can write at all: a line of so many waits for nobody. */
void collapse_set_expected(struct collapse *collapse, int expected);
/* A line of a worker; text is copied. Only lines of one kind are alike. 0; -ENOBUFS: pop some
 * first; -ENOMEM. A line that is longer than max_bytes is taken when nothing else waits. */
int collapse_add(struct collapse *collapse, int worker, int kind, const char *text,
                 size_t length, uint64_t now_ms);
/* The first line, when it is its time; `is_all`: whether or not. NULL: none. */
const struct collapse_line *collapse_peek(const struct collapse *collapse,
                                          uint64_t now_ms, bool is_all);
void collapse_pop(struct collapse *collapse);
/* When collapse_peek() will have something; UINT64_MAX: nothing waits. */
uint64_t collapse_wake_ms(const struct collapse *collapse);

/* "0-3,6" for bits 0 to 3 and 6, each plus `base`; "9 workers" when that does not fit. */
void collapse_format(char *dst, size_t size, const uint64_t *workers, int count,
                     unsigned base);

#endif
