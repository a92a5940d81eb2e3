/* SPDX-License-Identifier: Apache-2.0 */
/* The page where this process stores its progress (wire/progress.h). One page for each process; it
 * stays until the process ends. Any thread; nothing blocks. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The page's descriptor, which stays ours; the first call makes it. Or a negative errno. */
int ct_progress_open(void);
void ct_progress_step(uint64_t step, uint64_t now_ms);
/* Keeps the last value of each name. The name must be valid (wire/metric.h). 0, or -ENOSPC: there
 * are too many names. */
int ct_progress_metric(const char *name, double value);
/* Adds to the metric data_wait_seconds of this process. */
void ct_progress_data_wait(uint64_t more_ns);
/* Keeps the ids of the samples that are being processed, the first CT_SAMPLES_MAX of them. */
void ct_progress_samples(const uint64_t *ids, size_t count);
/* This process asks from time to time whether it should stop. */
void ct_progress_poll(void);
/* Called before and after a call that waits for other ranks. */
void ct_progress_begin_wait(void);
void ct_progress_end_wait(void);
