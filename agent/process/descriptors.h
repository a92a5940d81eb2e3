/* SPDX-License-Identifier: Apache-2.0 */
/* How many descriptors this process may have: as many as the system lets it, so that clients of others who
 * hold connections to it do not keep it from starting workers; workers have the user's own limit.
 *
 * And room for them, made while it is cheap. The kernel's table of them doubles whenever it
 * is full. Where threads share it, the one that fills it waits until every processor has let go
 * of the old table: 5 to 15 ms, twice in the start of 64 workers. */
#pragma once

#include <stddef.h>

/* Makes room for `count` descriptors, as far as RLIMIT_NOFILE goes. Before the first thread. */
void descriptors_reserve(int count);
/* Raises RLIMIT_NOFILE of this process, once. Before the first thread. */
void descriptors_raise(void);
/* What it was before, for children; NULL: it was not raised. */
struct rlimit;
const struct rlimit *descriptors_users_limit(void);
/* What is left for connections when `own` are kept for all else; never less than a few. */
size_t descriptors_left(size_t own);
