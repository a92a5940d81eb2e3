/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a global batch into equal shares, and each share into micro-batches. Borders are rounded
 * down, so that no two parts differ by more than one sample. */
#include <errno.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"

/* Where the i-th of `parts` equal parts of `count` begins. */
static size_t border(size_t count, size_t i, size_t parts)
{
    return count / parts * i + count % parts * i / parts;
}

int ctrun_batch_plan(struct ctrun_batch_plan *out, size_t global_batch,
                     size_t micro_max, int rank, int world_size,
                     struct ctrun_error *err)
{
    struct ctrun_batch_plan plan = CTRUN_BATCH_PLAN_INIT;
    size_t parts, largest;

    if (global_batch == 0 || global_batch > INT32_MAX)
        return ct_fail(err, -EINVAL,
                       "batch plan: global_batch is %zu, but must be 1 to %d",
                       global_batch, INT32_MAX);
    if (micro_max == 0)
        return ct_fail(err, -EINVAL,
                       "batch plan: micro_max is 0, but must be 1 or more");
    if (world_size < 1 || rank < 0 || rank >= world_size)
        return ct_fail(err, -EINVAL,
                       "batch plan: there is no rank %d in a world of %d ranks", rank,
                       world_size);
    parts = (size_t)world_size;
    largest = global_batch / parts + (global_batch % parts != 0);
    plan.start = border(global_batch, (size_t)rank, parts);
    plan.count = border(global_batch, (size_t)rank + 1, parts) - plan.start;
    plan.micros = largest / micro_max + (largest % micro_max != 0);
    return ct_sized_write(out, &plan, sizeof plan, "CTRUN_BATCH_PLAN_INIT", err);
}

int ctrun_batch_micro(const struct ctrun_batch_plan *given, size_t i, size_t *start,
                      size_t *count, struct ctrun_error *err)
{
    struct ctrun_batch_plan plan = CTRUN_BATCH_PLAN_INIT;
    size_t first;
    int rc = ct_sized_read(&plan, sizeof plan, given, "CTRUN_BATCH_PLAN_INIT", err);

    if (rc < 0)
        return ct_wrap(err, "batch plan"), rc;
    if (i >= plan.micros)
        return ct_fail(err, -EINVAL,
                       "batch plan: there is no micro-batch %zu: the plan has %zu, "
                       "counted from 0",
                       i, plan.micros);
    if (!start || !count)
        return ct_fail_null(err, start ? "count" : "start");
    first = border(plan.count, i, plan.micros);
    *start = plan.start + first;
    *count = border(plan.count, i + 1, plan.micros) - first;
    return 0;
}
