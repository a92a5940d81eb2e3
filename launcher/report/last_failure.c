/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/last_failure.h"

void last_failure_set(struct last_failure *why, const struct ct_stop *stop)
{
    if (stop->cause.cause != CT_CAUSE_NONE)
        why->stop = *stop;
}

void last_failure_format(struct messages_block *out, const struct last_failure *why,
                         const char *name, const char *run_id)
{
    const struct ct_stop *stop = &why->stop;
    struct ct_verdict verdict = {
        .generation = stop->generation,
        .outcome = CT_OUTCOME_FAILED,
        .restart_count = stop->restart_count,
        .failure_count = 1,
    };
    const struct json_error_file files[1] = {0};
    const struct summary summary = {.verdict = &verdict,
                                    .name = name,
                                    .run_id = run_id,
                                    .max_restarts = stop->max_restarts,
                                    .files = files};

    char text[512];

    *out = (struct messages_block){0};
    if (stop->reason == 0)
        return;
    verdict.failures[0] = stop->cause;
    summary_format(out, &summary);
    if (messages_format_culprit(text, sizeof text, stop))
        messages_add(out, "then", "%s", text);
}
