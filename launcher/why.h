/* SPDX-License-Identifier: Apache-2.0 */
/* The first cause of the last stop, kept while the run goes on: for `ctrunctl why`. */
#ifndef LAUNCHER_WHY_H
#define LAUNCHER_WHY_H

#include "launcher/summary.h"

struct why {
    struct ct_stop stop; /* reason 0: nothing has failed */
};

/* Takes what a STOP says, when it says a cause. */
void why_take(struct why *why, const struct ct_stop *stop);
/* The block, as it would be at the end; empty when nothing has failed. */
void why_format(struct messages_block *out, const struct why *why, const char *name,
                const char *run_id);

#endif
