/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/past_failures.h"

#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

void past_failures_add(struct past_failures *past, const struct ct_stop *stop)
{
    struct ct_stop *copy;

    if (stop->is_final || stop->cause.cause == CT_CAUSE_NONE ||
        (stop->reason != CT_STOP_FAILURE && stop->reason != CT_STOP_NODE_LOST))
        return;
    if (!(copy = ct_zalloc(sizeof *copy))) {
        past->left_out++;
        return;
    }
    *copy = *stop;
    if (past->count == PAST_FAILURES_MAX) {
        free(past->list[0]);
        past->count--;
        past->left_out++;
        memmove(past->list, past->list + 1, past->count * sizeof *past->list);
    }
    past->list[past->count++] = copy;
}

void past_failures_end(struct past_failures *past, const struct ct_verdict *verdict)
{
    const struct ct_failure *last = past->count ? &past->list[past->count - 1]->cause
                                                : NULL;

    for (int i = 0; last && i < verdict->failure_count && i < CT_FAILURES_MAX; i++) {
        const struct ct_failure *failure = &verdict->failures[i];

        if (failure->generation == last->generation && failure->rank == last->rank &&
            failure->cause == last->cause) {
            free(past->list[--past->count]);
            return;
        }
    }
}

void past_failures_deinit(struct past_failures *past)
{
    while (past->count)
        free(past->list[--past->count]);
}
