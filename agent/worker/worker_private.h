/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of a worker: worker.c starts it and sends it signals, worker_end.c makes its
 * failure report, worker_role.c finds its role. */
#pragma once

#include "agent/worker/worker.h"
#include "worker_sdk/base/event.h"

/* ---- worker_role.c */

/* The worker's role, if the node has several. */
void worker_emit_role(struct ct_event *event, const struct worker *worker,
                      const struct worker_place *place);

/* ---- worker_end.c */

/* The worker never ran, for `cause`: fills worker->failure. Returns err->code. */
int worker_fail_start(struct worker *worker, const struct worker_place *place,
                      int cause, const struct ctrun_error *err);
