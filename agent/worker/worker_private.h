/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a worker share: worker.c starts it and sends it signals, worker_end.c says what became of it,
 * worker_role.c which role it has. */
#pragma once

#include "agent/worker/worker.h"
#include "worker_sdk/base/event.h"

/* ---- worker_role.c */

/* Its role, where a node has several. */
void worker_emit_role(struct ct_event *event, const struct worker *worker,
                      const struct worker_place *place);

/* ---- worker_end.c */

/* It never ran, for `cause`: fills worker->failure. Returns err->code. */
int worker_fail_start(struct worker *worker, const struct worker_place *place,
                      int cause, const struct ctrun_error *err);
