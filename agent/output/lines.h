/* SPDX-License-Identifier: Apache-2.0 */
/* Output cut into pieces that may stand on a console by themselves: whole lines, and the
 * states of a progress bar, which end in '\r'. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Length of the first piece of data, its end mark included; 0: none is complete yet. A piece
 * that reaches `max` without an end is cut there, but not inside a UTF-8 character. */
size_t lines_first(const char *data, size_t length, size_t max);
/* True when a '\n' or '\r' is in data. */
bool lines_have_end(const char *data, size_t length);
/* Length of all complete pieces of data together, at most `max` unless the first is longer. */
size_t lines_whole(const char *data, size_t length, size_t max);
/* Length of what may be shown of a piece that has no end yet: no UTF-8 character is torn. */
size_t lines_begun(const char *data, size_t length);
/* True when one of the texts (NULL at the end) is in the piece. */
bool lines_match(const char *piece, size_t length, const char *const *texts);
/* Copies the last `count` lines of data that are not blank into dst[size]; text that a '\r' had
 * overwritten is left out, and what a line has beyond 300 bytes. When they do not fit, the first lines are left
 * out, or the end of the only one. Returns the length. */
size_t lines_last(const char *data, size_t length, int count, char *dst, size_t size);
