/* SPDX-License-Identifier: Apache-2.0 */
/* A mark that a launcher with the rendezvous server leaves on its machine for the next launcher
 * that serves the same run there: since when workers on other nodes may live that only the first
 * one knew.
 *
 * A killed launcher leaves its socket (ctl_dir.h). A launcher that ended normally leaves
 * RUN-PID.left in the same folder, if there are such workers; the file has the boot id, and
 * CLOCK_BOOTTIME in milliseconds. */
#pragma once

#include <stdint.h>

#define CTL_MARK_SUFFIX ".left"

/* Best effort: if the mark cannot be written, none is left. */
void ctl_mark_leave(const char *run_id, uint64_t from_ms);
/* The newest mark of that run, or now_ms where an agent of it was killed; 0: none. Also for a
 * run whose id only looks the same. The mark stays: of several launchers that look at the same
 * time, one will serve, and it is not known yet which. Marks of another boot, marks older than
 * an hour, and invalid files are removed. */
uint64_t ctl_mark_find(const char *run_id, uint64_t now_ms);
