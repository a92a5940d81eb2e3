/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/metrics.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/session/dispatch.h"
#include "rendezvous/session/run.h"
#include "rendezvous/store/store.h"
#include "worker_sdk/base/alloc.h"

/* ---- Text -------------------------------------------------------------------------------- */

/* Sticky: after the first failure nothing is appended any more. */
struct page {
    struct ct_buf *out;
    int rc;
};

static void head(struct page *page, const char *name, const char *type,
                 const char *help)
{
    if (page->rc == 0)
        page->rc = ct_buf_printf(page->out, "# HELP %s %s\n# TYPE %s %s\n", name, help,
                                 name, type);
}

static void sample(struct page *page, const char *name, const char *label,
                   const char *value, uint64_t number)
{
    if (page->rc == 0)
        page->rc = ct_buf_printf(page->out, "%s{%s=\"%s\"} %llu\n", name, label, value,
                                 (unsigned long long)number);
}

static void single(struct page *page, const char *name, const char *type,
                   const char *help, uint64_t number)
{
    head(page, name, type, help);
    if (page->rc == 0)
        page->rc = ct_buf_printf(page->out, "%s %llu\n", name,
                                 (unsigned long long)number);
}

static void seconds(struct page *page, const char *name, const char *help, uint64_t ms)
{
    head(page, name, "gauge", help);
    if (page->rc == 0)
        page->rc = ct_buf_printf(page->out, "%s %.3f\n", name, (double)ms / 1000);
}

/* ---- Runs and connections ---------------------------------------------------------------- */

static void add_runs(struct page *page, const struct dispatch *dispatch)
{
    uint64_t runs[ROUND_CLOSED + 1] = {0}, members[MEMBER_LEFT + 1] = {0};

    ct_list_for_each(struct run, run, &dispatch->runs.list, node) {
        const struct round *round = run->round;

        runs[round->state]++;
        member_for_each(member, &round->members)
            members[member->state]++;
    }
    head(page, "ctrund_runs", "gauge", "Runs, by the state of their round.");
    for (int i = 0; i <= ROUND_CLOSED; i++)
        sample(page, "ctrund_runs", "state", round_state_name((enum round_state)i),
               runs[i]);
    head(page, "ctrund_members", "gauge", "Agents of all runs, by state.");
    for (int i = 0; i <= MEMBER_LEFT; i++)
        sample(page, "ctrund_members", "state", member_state_name((enum member_state)i),
               members[i]);
}

static void add_rounds(struct page *page, const struct counters *counters)
{
    single(page, "ctrund_rounds_started_total", "counter", "Worlds that were started.",
           counters->rounds_started);
    single(page, "ctrund_restarts_total", "counter",
           "Restarts that were taken from a run's budget.", counters->restarts);
    head(page, "ctrund_failures_total", "counter",
         "Failures of workers and nodes, by cause; consequences of others included.");
    for (int i = CT_CAUSE_NONE + 1; i <= CT_CAUSE_LAST; i++)
        if (i != CT_CAUSE_ENDED) /* no agent reports it: a verdict makes it of EARLY */
            sample(page, "ctrund_failures_total", "cause", ct_cause_name(i),
                   counters->failures[i]);
}

static void add_stores(struct page *page, const struct dispatch *dispatch)
{
    struct store_stats stats = {0};

    if (dispatch->sum_stores)
        dispatch->sum_stores(dispatch->context, &stats);
    single(page, "ctrund_store_keys", "gauge", "Keys in all stores.", stats.keys);
    single(page, "ctrund_store_clients", "gauge", "Clients of all stores.",
           stats.clients);
    single(page, "ctrund_store_waiting_clients", "gauge",
           "Clients whose WAIT or BARRIER is pending.", stats.waiting);
    single(page, "ctrund_store_data_bytes", "gauge", "Bytes held by all stores.",
           stats.data_bytes);
    single(page, "ctrund_store_requests", "gauge",
           "Requests that the stores which are open now have executed.",
           stats.requests);
}

static void add_connections(struct page *page, const struct conn_pool *pool)
{
    static const char *const kinds[] = {"agent", "store", "http", "silent"};
    uint64_t counts[sizeof kinds / sizeof kinds[0]] = {0};

    ct_list_for_each(struct conn, conn, &pool->conns, node) {
        const struct conn_user *user = conn->user;

        for (size_t i = 0; user && user->kind && i < sizeof kinds / sizeof kinds[0];
             i++)
            counts[i] += strcmp(kinds[i], user->kind) == 0;
    }
    head(page, "ctrund_connections", "gauge", "Open connections, by their protocol.");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        sample(page, "ctrund_connections", "kind", kinds[i], counts[i]);
    single(page, "ctrund_connections_max", "gauge",
           "The most open connections at a time.", pool->count_max);
    head(page, "ctrund_refused_total", "counter",
         "Connections that were refused, by reason.");
    for (int i = 0; i < REJECT_KINDS; i++)
        sample(page, "ctrund_refused_total", "reason", reject_name((enum reject_kind)i),
               pool->rejects.kinds[i].count);
    single(page, "ctrund_received_bytes_total", "counter",
           "Bytes from all connections.", pool->bytes_in);
    single(page, "ctrund_sent_bytes_total", "counter", "Bytes to all connections.",
           pool->bytes_out);
}

/* ---- Metrics of ranks --------------------------------------------------------------------- */

struct rank_sample {
    const struct ct_metric *metric;
    const struct run *run;
    int32_t rank;
};

/* All samples of a name belong together. */
static int compare(const void *a, const void *b)
{
    const struct rank_sample *left = a, *right = b;
    const int names = strcmp(left->metric->name, right->metric->name);
    const int runs = names ? names : strcmp(left->run->id, right->run->id);

    return runs ? runs : (left->rank > right->rank) - (left->rank < right->rank);
}

static size_t list_those(struct rank_sample *list, const struct run *run,
                         const struct rank_metrics *metrics)
{
    size_t count = 0;

    if (metrics->generation != run->round->generation)
        return 0;
    for (size_t i = 0; i < metrics->rank_count; i++)
        for (int j = 0; j < metrics->ranks[i].count; j++)
            list[count++] = (struct rank_sample){.metric = &metrics->ranks[i].list[j],
                                                 .run = run,
                                                 .rank = metrics->ranks[i].rank};
    return count;
}

/* Lists the samples of the last world of each run: they stay until the next world starts. */
static size_t list_samples(struct rank_sample *list, const struct runs *runs)
{
    size_t count = 0;

    ct_list_for_each(const struct run, run, &runs->list, node) {
        count += list_those(list + count, run, &run->metrics);
        count += list_those(list + count, run, &run->node_metrics);
    }
    return count;
}

static void escape(char dst[2 * CT_RUN_ID_MAX], const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            *dst++ = '\\';
        *dst++ = *text;
    }
    *dst = '\0';
}

static void add_sample(struct page *page, const struct rank_sample *entry,
                       bool is_first)
{
    char value[CT_METRIC_VALUE_MAX], run[2 * CT_RUN_ID_MAX];
    const char *name = entry->metric->name;

    const bool is_node = strcmp(name, CT_METRIC_NODE_LATE) == 0;

    if (is_first)
        head(page, name, "gauge",
             is_node ? "How much later than the other nodes a node enters collectives, "
                       "on the average."
             : strcmp(name, CT_METRIC_LATE) == 0
                 ? "How much later than the others of its node a rank enters "
                   "collectives, on the average."
                 : "Sent by the ranks of the run.");
    ct_metric_format(value, entry->metric->value);
    escape(run, entry->run->id);
    if (page->rc == 0)
        page->rc = ct_buf_printf(page->out, "%s{run=\"%s\",%s=\"%d\"} %s\n", name, run,
                                 is_node ? "node" : "rank", (int)entry->rank, value);
}

static void add_ranks(struct page *page, const struct runs *runs)
{
    struct rank_sample *list = ct_zalloc_array(runs->metric_count + 1, sizeof *list);
    const size_t count = list ? list_samples(list, runs) : 0;

    if (!list)
        page->rc = -ENOMEM;
    if (count > 0)
        qsort(list, count, sizeof *list, compare);
    for (size_t i = 0; i < count; i++)
        add_sample(page, &list[i],
                   i == 0 ||
                       strcmp(list[i - 1].metric->name, list[i].metric->name) != 0);
    free(list);
}

int metrics_format(struct ct_buf *out, const struct dispatch *dispatch)
{
    const struct counters *counters = &dispatch->runs.counters;
    struct page page = {.out = out};

    head(&page, "ctrund_info", "gauge", "Always 1; the label is the version.");
    sample(&page, "ctrund_info", "version", ctrun_version(), 1);
    add_runs(&page, dispatch);
    add_rounds(&page, counters);
    add_stores(&page, dispatch);
    add_connections(&page, dispatch->pool);
    seconds(&page, "ctrund_loop_lag_seconds", "How late the last timer of a round was.",
            counters->lag_ms);
    seconds(&page, "ctrund_loop_lag_max_seconds",
            "How late a timer of a round was at most.", counters->lag_max_ms);
    single(&page, "ctrund_rank_metrics", "gauge",
           "Values sent by ranks, as many as are kept.", dispatch->runs.metric_count);
    single(&page, "ctrund_rank_metrics_refused_total", "counter",
           "Values of ranks that were left out, for lack of room.",
           counters->metrics_refused);
    add_ranks(&page, &dispatch->runs);
    return page.rc;
}
