/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/client/progress.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/client/shared.h"
#include "worker_sdk/wire/progress.h"

/* The mutex guards what takes several stores: making the page, a new name, samples; and all metrics
 * that make_page() copies. A step, a wait and a new value of a name that is on the page are one
 * atomic store each, and take no lock. */
static struct ct_progress unshared; /* used until ct_progress_open() */
static pid_t early_owner;           /* whose metrics are in `unshared` */
static struct ct_progress *_Atomic page = &unshared;
static int page_fd = -1;
static pid_t owner;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* A reader discards the samples when the number is odd or has changed meanwhile. */
static void write_samples(struct ct_progress_samples *to, const uint64_t *ids,
                          size_t count, uint64_t total)
{
    atomic_fetch_add_explicit(&to->sequence, 1, memory_order_acq_rel);
    to->count = (uint32_t)count;
    to->total = total;
    if (count > 0)
        memcpy(to->ids, ids, count * sizeof *ids);
    atomic_fetch_add_explicit(&to->sequence, 1, memory_order_release);
}

/* After a fork `unshared` has the parent's metrics. Locked. */
static void drop_parents_metrics(void)
{
    if (early_owner == getpid())
        return;
    memset(unshared.metrics, 0, sizeof unshared.metrics);
    unshared.metric_count = 0;
    early_owner = getpid();
}

static int make_page(void)
{
    void *memory;
    struct ct_progress *made;
    const int fd = ct_shared_create(&memory, "ctrun-progress", sizeof *made, 0);

    if (fd < 0)
        return fd;
    made = memory;
    made->magic = CT_PROGRESS_MAGIC;
    made->waits = atomic_load(&page->waits);
    if (page == &unshared) { /* what was reported before anybody could read it */
        drop_parents_metrics();
        memcpy(made->metrics, page->metrics, sizeof made->metrics);
        made->metric_count = page->metric_count;
    }
    made->polls = atomic_load(&page->polls);
    made->polled_ms = atomic_load(&page->polled_ms);
    made->poll_gap_ms = atomic_load(&page->poll_gap_ms);
    write_samples(&made->samples, page->samples.ids, page->samples.count,
                  page->samples.total);
    page = made; /* never unmapped: another thread may still use the old page */
    page_fd = fd;
    owner = getpid();
    return 0;
}

/* A child makes a page of its own: its parent's does not describe it. */
int ct_progress_open(void)
{
    int rc = 0;

    pthread_mutex_lock(&mutex);
    if (owner != getpid())
        rc = make_page();
    if (rc == 0)
        rc = page_fd;
    pthread_mutex_unlock(&mutex);
    return rc;
}

void ct_progress_step(uint64_t step, uint64_t now_ms)
{
    struct ct_progress *to = page;

    /* The time is stored last: it tells that there is a step. */
    atomic_store_explicit(&to->step, step, memory_order_relaxed);
    atomic_store_explicit(&to->step_ms, now_ms, memory_order_release);
}

/* Finds `name` among the first `count` metrics; NULL: not found. */
static struct ct_progress_metric *find_metric(struct ct_progress *in, uint64_t count,
                                              const char *name)
{
    for (uint64_t i = 0; i < count; i++)
        if (strcmp(in->metrics[i].name, name) == 0)
            return &in->metrics[i];
    return NULL;
}

static int add_metric(struct ct_progress *to, const char *name, uint64_t bits)
{
    const uint64_t count = to->metric_count;
    struct ct_progress_metric *metric = find_metric(to, count, name);

    if (!metric && count == CT_METRICS_MAX)
        return -ENOSPC;
    if (!metric) {
        metric = &to->metrics[count];
        memcpy(metric->name, name, strlen(name)); /* zeros follow */
    }
    metric->bits = bits;
    /* The name is complete before it is counted, so that readers, and find_metric() without the
     * lock, never see half of it. */
    if (metric == &to->metrics[count])
        atomic_store_explicit(&to->metric_count, count + 1, memory_order_release);
    return 0;
}

int ct_progress_metric(const char *name, double value)
{
    struct ct_progress *to = page;
    struct ct_progress_metric *metric = NULL;
    int rc;

    if (to != &unshared)
        metric = find_metric(
            to, atomic_load_explicit(&to->metric_count, memory_order_acquire), name);
    if (metric) {
        atomic_store_explicit(&metric->bits, ct_metric_to_bits(value),
                              memory_order_relaxed);
        return 0;
    }
    pthread_mutex_lock(&mutex);
    drop_parents_metrics();
    rc = add_metric(page, name, ct_metric_to_bits(value));
    pthread_mutex_unlock(&mutex);
    return rc;
}

/* A child begins at 0, and writes nothing to its parent's page. */
void ct_progress_data_wait(uint64_t more_ns)
{
    static uint64_t wait_ns;
    static pid_t waiter;

    pthread_mutex_lock(&mutex);
    wait_ns = (waiter == getpid() ? wait_ns : 0) + more_ns;
    waiter = getpid();
    drop_parents_metrics();
    if (page == &unshared || owner == waiter)
        (void)add_metric(page, "data_wait_seconds",
                         ct_metric_to_bits((double)wait_ns / 1e9));
    pthread_mutex_unlock(&mutex);
}

void ct_progress_samples(const uint64_t *ids, size_t count)
{
    pthread_mutex_lock(&mutex);
    write_samples(&page->samples, ids, count < CT_SAMPLES_MAX ? count : CT_SAMPLES_MAX,
                  count);
    pthread_mutex_unlock(&mutex);
}

void ct_progress_poll(void)
{
    const uint64_t now_ms = ct_now_ms();
    const uint64_t before_ms = atomic_exchange_explicit(&page->polled_ms, now_ms,
                                                        memory_order_relaxed);
    const uint64_t longest_ms = atomic_load_explicit(&page->poll_gap_ms,
                                                     memory_order_relaxed);
    const uint64_t gap_ms = before_ms > 0 ? now_ms - before_ms : 0;
    const uint64_t less_ms = longest_ms -
                             longest_ms / 1024; /* a long gap is forgotten some time */

    atomic_store_explicit(&page->poll_gap_ms, gap_ms > less_ms ? gap_ms : less_ms,
                          memory_order_relaxed);
    atomic_store_explicit(&page->polls, 1, memory_order_relaxed);
}

void ct_progress_begin_wait(void)
{
    (void)atomic_fetch_add_explicit(&page->waits, 1, memory_order_relaxed);
}

void ct_progress_end_wait(void)
{
    (void)atomic_fetch_sub_explicit(&page->waits, 1, memory_order_relaxed);
}
