/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/rank_metrics.h"

#include "rendezvous/session/session_limits.h"
#include "worker_sdk/base/str.h"

void rank_metrics_clear(struct rank_metrics *metrics)
{
    for (size_t i = 0; i < metrics->rank_count; i++)
        free(metrics->ranks[i].list);
    free(metrics->ranks);
    *metrics->all -= metrics->count;
    *metrics = (struct rank_metrics){.all = metrics->all};
}

/* Index of the rank, or where to insert it. */
static size_t find_place(const struct rank_metrics *metrics, int32_t rank)
{
    size_t from = 0, to = metrics->rank_count;

    while (from < to) {
        const size_t middle = from + (to - from) / 2;

        if (metrics->ranks[middle].rank < rank)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* Finds or adds the rank. NULL: no room, or out of memory. */
static struct rank_metrics_entry *get_rank(struct rank_metrics *metrics, int32_t rank)
{
    const size_t at = find_place(metrics, rank);
    struct rank_metrics_entry *ranks = metrics->ranks;

    if (at < metrics->rank_count && ranks[at].rank == rank)
        return &ranks[at];
    if (*metrics->all >= RANK_METRICS_MAX)
        return NULL;
    if (metrics->rank_count == metrics->capacity) {
        const size_t capacity = metrics->capacity ? 2 * metrics->capacity : 8;

        if (!(ranks = realloc(ranks, capacity * sizeof *ranks)))
            return NULL;
        metrics->ranks = ranks;
        metrics->capacity = capacity;
    }
    memmove(&ranks[at + 1], &ranks[at], (metrics->rank_count++ - at) * sizeof *ranks);
    ranks[at] = (struct rank_metrics_entry){.rank = rank};
    return &ranks[at];
}

static struct ct_metric *find_name(const struct rank_metrics_entry *entry,
                                   const char *name)
{
    for (int i = 0; i < entry->count; i++)
        if (strcmp(entry->list[i].name, name) == 0)
            return &entry->list[i];
    return NULL;
}

/* Makes room for one more value. False: out of memory. */
static bool make_room(struct rank_metrics_entry *entry)
{
    struct ct_metric *list;

    if (entry->count & (entry->count - 1)) /* below a power of two */
        return true;
    list = realloc(entry->list,
                   (size_t)(entry->count ? 2 * entry->count : 1) * sizeof *list);
    if (!list)
        return false;
    entry->list = list;
    return true;
}

/* False: no room for this value. */
static bool take_one(struct rank_metrics *metrics, const struct ct_metric_sent *sent)
{
    struct rank_metrics_entry *entry = get_rank(metrics, sent->rank);
    struct ct_metric *metric = entry ? find_name(entry, sent->name) : NULL;

    if (!entry || (!metric && (*metrics->all >= RANK_METRICS_MAX ||
                               entry->count == CT_METRICS_MAX || !make_room(entry))))
        return false;
    if (!metric) {
        metric = &entry->list[entry->count++];
        (void)ct_copy(metric->name, sizeof metric->name, sent->name);
        metrics->count++;
        ++*metrics->all;
    }
    metric->value = ct_metric_from_bits(sent->bits);
    return true;
}

static bool is_called(const struct ct_metric_sent *sent, const char *name)
{
    return strncmp(sent->name, name, sizeof sent->name) == 0;
}

bool rank_metrics_are_of_nodes(const struct ct_metrics *message)
{
    return message->count > 0 && is_called(&message->list[0], CT_METRIC_NODE_LATE);
}

static bool is_taken(const struct ct_metric_sent *sent, bool is_nodes)
{
    return is_nodes ? is_called(sent, CT_METRIC_NODE_LATE)
                    : is_called(sent, CT_METRIC_LATE) ||
                          ct_metric_is_name(sent->name, sizeof sent->name);
}

size_t rank_metrics_on_metrics(struct rank_metrics *metrics,
                               const struct ct_metrics *message, int64_t first,
                               int64_t slots, bool is_nodes)
{
    size_t left_out = 0;

    if (message->generation < metrics->generation)
        return message->count;
    if (message->generation > metrics->generation)
        rank_metrics_clear(metrics);
    metrics->generation = message->generation;
    for (int i = 0; i < message->count; i++) {
        const struct ct_metric_sent *sent = &message->list[i];

        if (sent->rank < first || sent->rank >= first + slots ||
            !is_taken(sent, is_nodes) || !take_one(metrics, sent))
            left_out++;
    }
    return left_out;
}
