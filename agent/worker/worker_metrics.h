/* SPDX-License-Identifier: Apache-2.0 */
/* The metrics that one worker has reported, and which of them the rendezvous server has not got
 * yet. They stay when the worker ends, until the next round. Pure. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

enum {
    /* As JSON: each with its quotation marks, colon and comma, in braces. */
    WORKER_METRICS_TEXT_MAX =
        CT_METRICS_MAX * (CT_METRIC_NAME_MAX + CT_METRIC_VALUE_MAX + 6) + 3
};

struct worker_metrics;

/* Stores values by name; *metrics is made when the first comes. A name beyond CT_METRICS_MAX or a
 * lack of memory changes nothing. True when something is new. */
bool worker_metrics_set(struct worker_metrics **metrics, const struct ct_metric *list,
                        int count);
void worker_metrics_destroy(struct worker_metrics *metrics); /* NULL is fine */
/* Appends new values, of `rank`, to `out`; values that find no room stay new. NULL: none. */
void worker_metrics_take(struct worker_metrics *metrics, int rank,
                         struct ct_metrics *out);
/* All values are new again. */
void worker_metrics_renew(struct worker_metrics *metrics);
/* {"loss":0.5,"rate":"NaN"}: a value that JSON cannot write as a number is written as a name.
 * Returns how many there are. */
int worker_metrics_format(char text[WORKER_METRICS_TEXT_MAX],
                          const struct worker_metrics *metrics);
