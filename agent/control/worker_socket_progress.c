/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "agent/control/worker_socket_private.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/progress.h"

enum {
    POLLS_AGAIN_MS = 30 *
                     1000, /* one that is silent for longer, and for longer than ... */
    POLLS_GAPS = 10,       /* ... ten times what is usual, will not ask again */
};

/* `count` was read before the metrics, so the page has all of them. Returns how many are valid;
 * a metric without a valid name is left out. */
static int read_metrics(int page, uint64_t count,
                        struct ct_metric metrics[CT_METRICS_MAX])
{
    struct ct_progress_metric raw[CT_METRICS_MAX];
    const ssize_t length = count <= CT_METRICS_MAX
                               ? pread(page, raw, count * sizeof *raw,
                                       offsetof(struct ct_progress, metrics))
                               : 0;
    int found = 0;

    for (size_t i = 0; (ssize_t)((i + 1) * sizeof *raw) <= length; i++) {
        if (!ct_metric_is_name(raw[i].name, sizeof raw[i].name))
            continue;
        metrics[found].value = ct_metric_from_bits(raw[i].bits);
        (void)ct_copy(metrics[found++].name, CT_METRIC_NAME_MAX, raw[i].name);
    }
    return found;
}

/* NULL: it has reported none, or died while it wrote them. */
static const struct ct_samples *read_samples(int page, struct ct_samples *out)
{
    struct ct_progress_samples raw;

    if (pread(page, &raw, sizeof raw, offsetof(struct ct_progress, samples)) !=
            (ssize_t)sizeof raw ||
        raw.sequence == 0 || raw.sequence % 2 != 0 || raw.count == 0 ||
        raw.count > CT_SAMPLES_MAX || raw.total < raw.count)
        return NULL;
    out->total = raw.total;
    out->count = (uint8_t)raw.count;
    for (uint32_t i = 0; i < raw.count; i++)
        out->list[i].id = raw.ids[i];
    return out;
}

/* pread() in place of a mapping, which a worker could make invalid by shortening the memory. */
void worker_socket_report_progress(const struct connection *connection)
{
    const struct worker_socket_options *options = &connection->worker_socket->options;
    const uint64_t now_ms = ct_now_ms();
    struct ct_metric metrics[CT_METRICS_MAX];
    struct ct_progress page;
    struct worker_socket_progress progress;
    struct ct_samples samples;

    if (connection->progress < 0 || !options->on_progress ||
        pread(connection->progress, &page, offsetof(struct ct_progress, metrics), 0) !=
            offsetof(struct ct_progress, metrics) ||
        page.magic != CT_PROGRESS_MAGIC || page.step > INT64_MAX)
        return;
    progress = (struct worker_socket_progress){
        .step = page.step_ms > 0 ? (int64_t)page.step : -1,
        .step_ms = page.step_ms < now_ms ? page.step_ms : now_ms,
        .waits = page.waits > 0,
        .metric_count = read_metrics(connection->progress, page.metric_count, metrics),
        .metrics = metrics,
        .samples = read_samples(connection->progress, &samples),
    };
    options->on_progress(options->context, connection->rank, connection->generation,
                         &progress);
}

bool worker_socket_page_polls(int page, uint64_t now_ms)
{
    enum {
        FROM = offsetof(struct ct_progress, polls),
        OLD_BYTES = sizeof(uint32_t) /* of an older library */
    };
    struct ct_progress read;
    uint64_t limit_ms = POLLS_AGAIN_MS;
    ssize_t length;

    if (pread(page, &read.magic, sizeof read.magic, 0) != sizeof read.magic ||
        read.magic != CT_PROGRESS_MAGIC)
        return false;
    length = pread(page, (char *)&read + FROM, sizeof read - FROM, FROM);
    if (length < OLD_BYTES || read.polls == 0)
        return false;
    if (length < (ssize_t)(sizeof read - FROM) || read.poll_gap_ms == 0)
        return true;
    if (read.poll_gap_ms > limit_ms / POLLS_GAPS)
        limit_ms = read.poll_gap_ms < UINT64_MAX / POLLS_GAPS
                       ? read.poll_gap_ms * POLLS_GAPS
                       : UINT64_MAX;
    return read.polled_ms >= now_ms || now_ms - read.polled_ms <= limit_ms;
}

pid_t worker_socket_find_polling(const struct worker_socket *worker_socket, int rank,
                                 uint64_t generation)
{
    const uint64_t now_ms = ct_now_ms();

    ct_list_for_each(struct connection, connection, &worker_socket->connections, node)
        if (connection->rank == rank && connection->generation == generation &&
            connection->progress >= 0 &&
            worker_socket_page_polls(connection->progress, now_ms))
            return connection->pid;
    return 0;
}

void worker_socket_refresh(struct worker_socket *worker_socket)
{
    ct_list_for_each(struct connection, connection, &worker_socket->connections, node)
        worker_socket_report_progress(connection);
}
