/* SPDX-License-Identifier: Apache-2.0 */
/* The first cause of the last stop, kept while the run continues: for `ctrunctl why`. */
#pragma once

#include "launcher/report/summary.h"

struct last_failure {
    struct ct_stop stop; /* reason 0: nothing has failed */
};

/* Keeps the cause of a STOP, if it has one. */
void last_failure_set(struct last_failure *why, const struct ct_stop *stop);
/* The failure block, as at the end of a run; empty when nothing has failed. */
void last_failure_format(struct messages_block *out, const struct last_failure *why,
                         const char *name, const char *run_id);
