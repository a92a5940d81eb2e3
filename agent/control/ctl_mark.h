/* SPDX-License-Identifier: Apache-2.0 */
/* What a launcher that served a run leaves on its machine for the next one that serves it there: since when
 * workers on other nodes may live that only the first one knew.
 *
 * One that was killed leaves its socket (ctl_dir.h); one that ended in peace RUN-PID.left in the same folder,
 * if there are such workers: the boot's id, and CLOCK_BOOTTIME in milliseconds. */
#pragma once

#include <stdint.h>

#define CTL_MARK_SUFFIX ".left"

/* Best effort: where it cannot be written, nothing is left. */
void ctl_mark_leave(const char *run_id, uint64_t from_ms);
/* The newest mark of that run, or now_ms where an agent of it was killed; 0: none. Also for a run whose id
 * only looks the same. It stays: of several that look at once, one serves, and nobody knows yet which.
 * Marks of another boot or older than an hour, and what is none, are removed. */
uint64_t ctl_mark_find(const char *run_id, uint64_t now_ms);
