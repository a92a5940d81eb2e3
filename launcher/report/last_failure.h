/* SPDX-License-Identifier: Apache-2.0 */
/* The first cause of the last stop, kept while the run continues: for `ctrunctl why`. */
#pragma once

#include "launcher/report/summary.h"

struct last_failure {
    struct ct_stop stop; /* reason 0: nothing has failed */
};

/* Takes what a STOP says, when it says a cause. */
void last_failure_set(struct last_failure *why, const struct ct_stop *stop);
/* The block, as it would be at the end; empty when nothing has failed. */
void last_failure_format(struct messages_block *out, const struct last_failure *why,
                         const char *name, const char *run_id);
