/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/worker/worker_metrics.h"

#include <math.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

struct worker_metrics {
    int count;
    struct {
        struct ct_metric metric;
        bool is_new;
    } list[CT_METRICS_MAX];
};

/* Bit by bit: NaN is equal to itself here. */
static bool set_one(struct worker_metrics *metrics, const struct ct_metric *metric)
{
    int i = 0;

    while (i < metrics->count &&
           strcmp(metrics->list[i].metric.name, metric->name) != 0)
        i++;
    if (i == CT_METRICS_MAX ||
        (i < metrics->count && ct_metric_to_bits(metrics->list[i].metric.value) ==
                                   ct_metric_to_bits(metric->value)))
        return false;
    metrics->list[i].metric = *metric;
    metrics->list[i].is_new = true;
    if (i == metrics->count)
        metrics->count++;
    return true;
}

bool worker_metrics_set(struct worker_metrics **metrics, const struct ct_metric *list,
                        int count)
{
    bool is_new = false;

    if (count > 0 && !*metrics)
        *metrics = ct_zalloc(sizeof **metrics);
    for (int i = 0; i < count && *metrics; i++)
        is_new |= set_one(*metrics, &list[i]);
    return is_new;
}

void worker_metrics_destroy(struct worker_metrics *metrics)
{
    free(metrics);
}

void worker_metrics_take(struct worker_metrics *metrics, int rank,
                         struct ct_metrics *out)
{
    for (int i = 0; metrics && i < metrics->count && out->count < CT_METRICS_SENT_MAX;
         i++) {
        struct ct_metric_sent *metric = &out->list[out->count];

        if (!metrics->list[i].is_new)
            continue;
        metrics->list[i].is_new = false;
        metric->rank = rank;
        metric->bits = ct_metric_to_bits(metrics->list[i].metric.value);
        (void)ct_copy(metric->name, sizeof metric->name, metrics->list[i].metric.name);
        out->count++;
    }
}

void worker_metrics_renew(struct worker_metrics *metrics)
{
    for (int i = 0; metrics && i < metrics->count; i++)
        metrics->list[i].is_new = true;
}

int worker_metrics_format(char text[WORKER_METRICS_TEXT_MAX],
                          const struct worker_metrics *metrics)
{
    const int count = metrics ? metrics->count : 0;

    (void)ct_copy(text, WORKER_METRICS_TEXT_MAX, "{");
    for (int i = 0; i < count; i++) {
        const struct ct_metric *metric = &metrics->list[i].metric;
        const char *quote = isfinite(metric->value) ? "" : "\"";
        char value[CT_METRIC_VALUE_MAX];

        ct_metric_format(value, metric->value);
        (void)ct_append(text, WORKER_METRICS_TEXT_MAX, "%s\"%s\":%s%s%s", i ? "," : "",
                        metric->name, quote, value, quote);
    }
    (void)ct_append(text, WORKER_METRICS_TEXT_MAX, "}");
    return count;
}
