/* SPDX-License-Identifier: Apache-2.0 */
/* How many descriptors this process may have: as many as the system allows, so that other
 * people's connections to it cannot keep it from starting workers. Workers keep the user's own
 * limit.
 *
 * Room in the kernel's table is reserved while this is cheap. The table doubles when it is full.
 * Once threads share it, the thread that fills it waits until every processor has released the
 * old table: 5 to 15 ms, twice while 64 workers start. */
#pragma once

#include <stddef.h>

/* Makes room for `count` descriptors, as far as RLIMIT_NOFILE goes. Before the first thread. */
void descriptors_reserve(int count);
/* Raises RLIMIT_NOFILE of this process, once. Before the first thread. */
void descriptors_raise(void);
/* The limit before that, for children; NULL: it was not raised. */
struct rlimit;
const struct rlimit *descriptors_users_limit(void);
/* Descriptors left for connections when `own` are kept for everything else; never less than a
 * few. */
size_t descriptors_left(size_t own);
