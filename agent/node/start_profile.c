/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/start_profile.h"

#include "agent/worker/worker.h"

static void end_phase(struct bill *bill, enum bill_phase phase, uint64_t at_ms)
{
    if (at_ms > 0) /* else it is not known */
        bill_end_phase(bill, phase, at_ms, -1);
}

void start_profile_read(struct bill_rank *out, const struct worker *worker)
{
    const uint64_t step_ms = worker->first_step_ms ? worker->first_step_ms
                                                   : worker->optimizer_ms;
    struct bill bill;

    bill_begin(&bill, BILL_START, worker->started_ms);
    end_phase(&bill, BILL_START, worker->runs_ms);
    end_phase(&bill, BILL_IMPORT, bill_import_end(worker->hello_ms, step_ms));
    if (step_ms == 0 || worker->joined_ms <= step_ms) /* a later group is another one */
        end_phase(&bill, BILL_INIT, worker->joined_ms);
    end_phase(&bill, BILL_FIRST_STEP, step_ms);
    out->rank = worker->rank;
    bill_add_up(&out->sum, &bill);
}
