/* SPDX-License-Identifier: Apache-2.0 */
/* The page on which this process says how far it has come (wire/progress.h). One a process; it stays
 * until the process ends. Any thread; nothing blocks. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Its descriptor, which stays ours; made by the first call. Or a negative errno. */
int ct_progress_open(void);
void ct_progress_step(uint64_t step, uint64_t now_ms);
/* Keeps the last value of each name, which is a valid one (wire/metric.h). 0, or -ENOSPC: it is one name
 * too many. */
int ct_progress_metric(const char *name, double value);
/* Keeps the ids of what is being worked on, the first CT_SAMPLES_MAX of them. */
void ct_progress_samples(const uint64_t *ids, size_t count);
/* Around a call that waits for other ranks. */
void ct_progress_begin_wait(void);
void ct_progress_end_wait(void);
