/* SPDX-License-Identifier: Apache-2.0 */
/* A mark that a launcher with the rendezvous server leaves on its machine for the next launcher
 * that serves the same run there: since when workers on other nodes may live that only the first
 * one knew.
 *
 * A killed launcher leaves its socket (ctl_dir.h); who finds that, also for another run, leaves the
 * mark in its place. A launcher that ended normally leaves the mark if there are such workers. It is
 * a file RUN-PID.left in the folder of the sockets. */
#pragma once

#include <stdint.h>

/* Best effort: if the mark cannot be written, none is left. */
void ctl_mark_leave(const char *run_id, uint64_t from_ms);
/* The time of the newest mark of that run; 0: none. Also for a run whose id only looks the same.
 * An agent whose death is noticed now was killed at now_ms. The mark stays: of several launchers
 * that look at the same time, one will serve, and it is not known yet which. Marks of another boot,
 * marks older than an hour, and invalid files are removed. */
uint64_t ctl_mark_find(const char *run_id, uint64_t now_ms);
