/* SPDX-License-Identifier: Apache-2.0 */
/* Do all ranks train the same model? One small collective when they do; when not, every rank
 * fails with the same sentence, which names the first parameter that differs and the ranks. */
#ifndef CT_DDP_VERIFY_H
#define CT_DDP_VERIFY_H

#include "worker_sdk/include/ctrun.h"

/* Collective, in spite of what is wrong here: `local` is this rank's own verdict on its
 * arguments (0, or a negative code whose sentence is in err) and makes all ranks fail.
 * CTRUN_E_MISMATCH when they differ, `local` where it is negative, or the group's failure. */
int ct_ddp_verify(struct ctrun_group *group, const struct ctrun_param *params,
                  size_t count, const struct ctrun_ddp_options *options, int local,
                  struct ctrun_error *err);

enum {
    CT_DDP_REPORT_BYTES = 384
};

/* Collective, after a step in which some rank missed gradients: `mine` says which (empty:
 * none here). Writes the common sentence and returns CTRUN_E_USAGE or the group's failure. */
int ct_ddp_report_missing(struct ctrun_group *group, const char *mine,
                          struct ctrun_error *err);

#endif
