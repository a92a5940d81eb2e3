/* SPDX-License-Identifier: Apache-2.0 */
/* All batch systems: the reader of each, and questions to the one that started us. Pure. */
#pragma once

#include "launcher/batch/batch.h"

/* 1 and *out (deinit it) when a batch system started us as a task; 0 when none did, or only a
 * script of it; CTRUN_E_BAD_ENVIRONMENT when its variables contradict each other, naming them. */
int batch_find(struct batch_place *out, const struct batch_source *from,
               struct ctrun_error *err);
/* When the job's time is over, in seconds since 1970: from CTRUN_END_TIME, else from Slurm; 0: neither
 * is set. CTRUN_E_BAD_ENVIRONMENT. */
int batch_end(int64_t *end_s, const struct batch_source *from, struct ctrun_error *err);
