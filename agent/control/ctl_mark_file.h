/* SPDX-License-Identifier: Apache-2.0 */
/* One mark (ctl_mark.h): a file RUN-PID.left with the boot id, and CLOCK_BOOTTIME in
 * milliseconds. */
#pragma once

#include <stdint.h>

#define CTL_MARK_SUFFIX ".left"

/* Best effort: if the mark cannot be written, there is none. It is seen whole or not at all. */
void ctl_mark_file_write(int dir, const char *name, uint64_t from_ms);
/* The time of the mark, now_ms at most. 0: it is of another boot, older than an hour, far in the
 * future, or invalid; then it is removed. */
uint64_t ctl_mark_file_read(int dir, const char *name, uint64_t now_ms);
