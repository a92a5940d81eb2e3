/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that all ranks train the same model. One small collective when they do; when not, every
 * rank fails with the same sentence, which names the first parameter or option that differs and the
 * ranks. */
#pragma once

#include "worker_sdk/include/ctrun.h"

/* What a rank was given; borrowed. */
struct ct_ddp_model {
    const struct ctrun_param *params;
    size_t count;
    /* One of the two. */
    const struct ctrun_ddp_options *ddp;
    const struct ctrun_zero_options *zero;
};

/* Collective, also on a rank with wrong arguments: `local` is this rank's own result of checking
 * its arguments (0, or a negative code whose sentence is in err) and makes all ranks fail.
 * CTRUN_E_MISMATCH when they differ, and where another rank has refused its arguments, with that
 * rank's sentence; `local` where it is negative; or the group's failure. */
int ct_ddp_verify(struct ctrun_group *group, const struct ct_ddp_model *model,
                  int local, struct ctrun_error *err);

enum {
    CT_DDP_REPORT_BYTES = 384
};

/* What was wrong with a step on this rank. */
struct ct_ddp_report {
    int32_t
        code; /* 0: nothing; CTRUN_E_USAGE: gradients are missing; CTRUN_E_DIVERGED: one is not finite */
    char text[CT_DDP_REPORT_BYTES]; /* which */
};
/* Collective, after a step in which something was wrong on some rank. Writes a sentence about the
 * first of them, the same on all, and returns its code, or the group's failure. */
int ct_ddp_exchange_reports(struct ctrun_group *group, const struct ct_ddp_report *mine,
                            struct ctrun_error *err);
