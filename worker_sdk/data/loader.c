/* SPDX-License-Identifier: Apache-2.0 */
/* Batches that threads make ahead, in the sampler's order.
 *
 *     begun ──────────────────────────────> number of the next batch that a thread takes up
 *       given ─────────────────────────> of the next one that next() gives
 *         free_from ─────────────────> of the oldest one whose memory is in use
 *
 * Batch n is in slot n % slots. A thread takes up batch `begun` when that is less than free_from +
 * slots, so that memory is bounded; next() waits until slot `given` is made. The failure of a
 * batch is reported when the batch is due: the order of what next() returns does not depend on the
 * threads.
 *
 * next() takes the lock only to wait, or to wake: when the next batch is ready, next() makes no
 * system call, except one to wake the threads each time that half of the slots have become free.
 * The threads are SCHED_BATCH, so that a woken thread does not take the processor from the
 * training step at once: it has time until the ready batches are used up. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/sized.h"
#include "worker_sdk/base/thread.h"
#include "worker_sdk/client/progress.h"

enum {
    THREADS_MAX = 256,
    DEPTH_MAX = 4096
};

struct slot {
    uint64_t *indices; /* borrowed from the loader's */
    uint8_t *data;     /* likewise, or the caller's */
    size_t count;
    /* Stored by the slot's thread under the lock after all else of the slot, and loaded by next()
     * without the lock. */
    atomic_bool is_made;
    int rc;
    struct ctrun_error err;
};

struct ctrun_loader {
    struct ctrun_loader_options options;
    struct slot *slots;
    uint64_t slot_count;
    uint64_t *indices; /* owned; of all slots */
    uint8_t *memory;   /* owned; NULL: the caller's */
    pthread_t *threads;
    int thread_count;
    uint64_t given;             /* the caller's alone */
    _Atomic uint64_t free_from; /* stored by the caller alone */
    _Atomic uint64_t total;     /* stored under the lock */
    /* Threads that sleep, or are about to. They add themselves before they look at free_from for
     * the last time, and next() looks here after it has stored free_from: at least one of the two
     * sees the other. */
    atomic_int sleepers;
    _Atomic uint64_t batches, waits, wait_ns; /* statistics of next() */
    pthread_mutex_t lock;                     /* of all below */
    pthread_cond_t room;                      /* a thread may continue */
    pthread_cond_t made; /* a batch is ready, or a thread has become idle */
    uint64_t begun, fetch_ns;
    int busy; /* threads that make a batch */
    bool is_closing;
};

/* ---- The threads ---- */

static void make(struct ctrun_loader *loader, uint64_t number, struct slot *slot)
{
    const struct ctrun_loader_options *options = &loader->options;
    /* The sampler is read without the lock by several threads: it changes only in set_epoch(),
     * which first waits until none is busy. */
    const size_t length = ctrun_sampler_length(options->sampler);
    const size_t first = (size_t)number * options->batch;

    slot->count = length - first < options->batch ? length - first : options->batch;
    for (size_t i = 0; i < slot->count; i++)
        slot->indices[i] = ctrun_sampler_index(options->sampler, first + i);
    slot->err.text[0] = '\0';
    slot->rc = options->fetch(options->context, slot->indices, slot->count, slot->data,
                              &slot->err);
    if (slot->rc >= 0)
        return;
    (void)ct_fail_called(&slot->err, slot->rc, "fetch");
    ct_wrap(&slot->err, "loader: batch %llu", (unsigned long long)number);
}

/* Holds the lock. */
static bool has_work(struct ctrun_loader *loader)
{
    return loader->begun < atomic_load(&loader->total) &&
           loader->begun < atomic_load(&loader->free_from) + loader->slot_count;
}

/* Holds the lock, except while it makes the batch. */
static void make_next(struct ctrun_loader *loader)
{
    const uint64_t number = loader->begun++;
    struct slot *slot = &loader->slots[number % loader->slot_count];
    uint64_t begin_ns;

    loader->busy++;
    pthread_mutex_unlock(&loader->lock);
    begin_ns = ct_now_ns();
    make(loader, number, slot);
    pthread_mutex_lock(&loader->lock);
    loader->fetch_ns += ct_now_ns() - begin_ns;
    atomic_store(&slot->is_made, true);
    loader->busy--;
    /* to all: next() waits for one certain batch, set_epoch() for the last busy thread */
    pthread_cond_broadcast(&loader->made);
}

/* Holds the lock. */
static void sleep_until_room(struct ctrun_loader *loader)
{
    atomic_fetch_add(&loader->sleepers, 1);
    while (!loader->is_closing && !has_work(loader))
        pthread_cond_wait(&loader->room, &loader->lock);
    atomic_fetch_sub(&loader->sleepers, 1);
}

/* A slot belongs to the thread that took its number until is_made is set; from then on to next(),
 * and from the call of next() after that to the thread that takes up number + slots. So make()
 * needs no lock. */
static void *run_thread(void *context)
{
    const struct sched_param none = {.sched_priority = 0};
    struct ctrun_loader *loader = context;

    /* A refusal is harmless: the thread keeps the normal policy. */
    (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
    pthread_mutex_lock(&loader->lock);
    while (!loader->is_closing)
        if (has_work(loader))
            make_next(loader);
        else
            sleep_until_room(loader);
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

/* ---- Opening ---- */

static int check(const struct ctrun_loader_options *options, struct ctrun_error *err)
{
    size_t bytes;

    if (!options->sampler || !options->fetch)
        return ct_fail(err, -EINVAL,
                       "loader: the options sampler and fetch must be set");
    if (options->batch < 1 || options->batch_bytes < 1 ||
        __builtin_mul_overflow(options->batch, sizeof(uint64_t), &bytes))
        return ct_fail(err, -EINVAL,
                       "loader: batch is %zu and batch_bytes %zu: both must be 1 or "
                       "more, and batch %zu at most",
                       options->batch, options->batch_bytes,
                       SIZE_MAX / sizeof(uint64_t));
    if (options->threads < 1 || options->threads > THREADS_MAX || options->depth < 1 ||
        options->depth > DEPTH_MAX)
        return ct_fail(err, -EINVAL,
                       "loader: threads is %d and depth %d: threads must be 1 to %d, "
                       "depth 1 to %d",
                       options->threads, options->depth, THREADS_MAX, DEPTH_MAX);
    return 0;
}

static int make_slots(struct ctrun_loader *loader)
{
    const struct ctrun_loader_options *options = &loader->options;
    size_t all;

    loader->slot_count = (uint64_t)options->depth + 1; /* one is the caller's */
    if (__builtin_mul_overflow(options->batch, loader->slot_count, &all) ||
        !(loader->slots = ct_zalloc_array(loader->slot_count, sizeof *loader->slots)) ||
        !(loader->indices = ct_zalloc_array(all, sizeof *loader->indices)) ||
        !(loader->threads = ct_zalloc_array((size_t)options->threads,
                                            sizeof *loader->threads)) ||
        (!options->memory &&
         !(loader->memory = ct_zalloc_array(loader->slot_count, options->batch_bytes))))
        return -ENOMEM;
    for (size_t i = 0; i < loader->slot_count; i++) {
        loader->slots[i].indices = loader->indices + i * options->batch;
        loader->slots[i].data = (options->memory ? (uint8_t *)options->memory
                                                 : loader->memory) +
                                i * options->batch_bytes;
    }
    return 0;
}

static int start_threads(struct ctrun_loader *loader)
{
    int rc = 0;

    while (rc == 0 && loader->thread_count < loader->options.threads) {
        rc = ct_thread_start(&loader->threads[loader->thread_count], run_thread,
                             loader);
        loader->thread_count += rc == 0;
    }
    return rc;
}

/* Starts the epoch that the sampler has. The caller holds the lock, or no thread runs yet. */
static void begin(struct ctrun_loader *loader)
{
    const size_t length = ctrun_sampler_length(loader->options.sampler);

    loader->begun = loader->given = 0;
    for (size_t i = 0; i < loader->slot_count; i++)
        atomic_store(&loader->slots[i].is_made, false);
    atomic_store(&loader->free_from, 0);
    atomic_store(&loader->total, length / loader->options.batch +
                                     (length % loader->options.batch != 0));
    pthread_cond_broadcast(&loader->room);
}

int ctrun_loader_open(struct ctrun_loader **out,
                      const struct ctrun_loader_options *given, struct ctrun_error *err)
{
    struct ctrun_loader_options options = CTRUN_LOADER_OPTIONS_INIT;
    struct ctrun_loader *loader;
    int rc;

    if (!out)
        return ct_fail_null(err, "out");
    *out = NULL;
    if ((rc = ct_sized_read(&options, sizeof options, given,
                            "CTRUN_LOADER_OPTIONS_INIT", err)) < 0)
        return ct_wrap(err, "loader: options"), rc;
    if ((rc = check(&options, err)) < 0)
        return rc;
    if (!(loader = ct_zalloc(sizeof *loader)))
        return ct_fail(err, -ENOMEM, "loader: out of memory");
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->room, NULL);
    ct_cond_init(&loader->made);
    loader->options = options;
    if (make_slots(loader) < 0) {
        rc = ct_fail(err, -ENOMEM,
                     "loader: out of memory for %d batches of %zu samples (%zu bytes)",
                     options.depth + 1, options.batch, options.batch_bytes);
        goto fail;
    }
    begin(loader);
    if ((rc = start_threads(loader)) < 0) {
        rc = ct_fail(err, rc, "loader: start a thread: %s", strerror(-rc));
        goto fail;
    }
    *out = loader;
    return 0;
fail:
    ctrun_loader_close(loader);
    return rc;
}

/* Also called when open() could not get all threads or memory: thread_count counts the threads
 * that run. A fetch that hangs makes this call hang, too; freeing the buffer that the fetch uses
 * would be worse. */
void ctrun_loader_close(struct ctrun_loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->is_closing = true;
    pthread_cond_broadcast(&loader->room);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->thread_count; i++)
        pthread_join(loader->threads[i], NULL);
    pthread_cond_destroy(&loader->made);
    pthread_cond_destroy(&loader->room);
    pthread_mutex_destroy(&loader->lock);
    free(loader->threads);
    free(loader->memory);
    free(loader->indices);
    free(loader->slots);
    free(loader);
}

/* ---- The caller ---- */

int ctrun_loader_set_epoch(struct ctrun_loader *loader, uint64_t epoch, size_t start,
                           struct ctrun_error *err)
{
    uint64_t deadline_ms;
    int rc = 0;

    if (!loader)
        return ct_fail_null(err, "loader");
    deadline_ms = ct_deadline_ms(loader->options.timeout_ms);
    pthread_mutex_lock(&loader->lock);
    /* After a failure below the loader stays at the end of the epoch before: next() gives what
     * is made and then 0. */
    atomic_store(&loader->total, loader->begun); /* no thread takes up another one */
    while (rc == 0 && loader->busy > 0)
        if (!ct_cond_wait(&loader->made, &loader->lock, deadline_ms) &&
            loader->busy > 0)
            rc = ct_fail(err, CTRUN_E_TIMEOUT,
                         "loader: %d batches of the epoch before were not made within "
                         "%llu ms",
                         loader->busy, (unsigned long long)loader->options.timeout_ms);
    if (rc == 0 &&
        (rc = ctrun_sampler_set_epoch(loader->options.sampler, epoch, start, err)) == 0)
        begin(loader);
    pthread_mutex_unlock(&loader->lock);
    return rc;
}

static int wait_for(struct ctrun_loader *loader, struct slot *slot,
                    struct ctrun_error *err)
{
    const uint64_t begin_ns = ct_now_ns();
    const uint64_t deadline_ms = ct_deadline_ms(loader->options.timeout_ms);
    uint64_t waited_ns;
    int rc = 0;

    pthread_mutex_lock(&loader->lock);
    while (rc == 0 && !atomic_load(&slot->is_made))
        /* A batch that was made while this process was stopped counts. */
        if (!ct_cond_wait(&loader->made, &loader->lock, deadline_ms) &&
            !atomic_load(&slot->is_made))
            rc = ct_fail(err, CTRUN_E_TIMEOUT,
                         "loader: batch %llu was not made within %llu ms",
                         (unsigned long long)loader->given,
                         (unsigned long long)loader->options.timeout_ms);
    pthread_mutex_unlock(&loader->lock);
    atomic_fetch_add(&loader->waits, 1);
    waited_ns = ct_now_ns() - begin_ns;
    atomic_fetch_add(&loader->wait_ns, waited_ns);
    ct_progress_data_wait(waited_ns);
    return rc;
}

/* Frees the slot of the batch before. It is cheaper to wake the threads once for several slots
 * than for each slot; the ready batches last until then, or else the threads are woken for this
 * slot. */
static void give_back(struct ctrun_loader *loader, const struct slot *next)
{
    const bool is_due = loader->given % ((loader->slot_count + 1) / 2) == 0 ||
                        !atomic_load(&next->is_made);

    atomic_store(&loader->free_from, loader->given);
    if (!is_due || atomic_load(&loader->sleepers) == 0)
        return;
    pthread_mutex_lock(&loader->lock); /* a thread holds it until it sleeps */
    pthread_mutex_unlock(&loader->lock);
    pthread_cond_broadcast(&loader->room);
}

int ctrun_loader_next(struct ctrun_loader *loader, struct ctrun_batch *out,
                      struct ctrun_error *err)
{
    struct slot *slot;
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    /* before a batch is used up */
    int rc = ct_sized_write(out, &batch, sizeof batch, "CTRUN_BATCH_INIT", err);

    if (rc < 0)
        return rc;
    if (!loader)
        return ct_fail_null(err, "loader");
    slot = &loader->slots[loader->given % loader->slot_count];
    /* Also when this call fails: the caller's batch is its own only until it calls again. */
    give_back(loader, slot);
    if (loader->given < atomic_load(&loader->total)) {
        if (!atomic_load(&slot->is_made) && (rc = wait_for(loader, slot, err)) < 0)
            return rc;
        batch.data = slot->data;
        batch.indices = slot->indices;
        batch.count = slot->count;
        atomic_store(&slot->is_made, false);
        loader->given++;
        atomic_fetch_add(&loader->batches, 1);
        ct_progress_samples(slot->indices, slot->count);
        /* The batch counts as given, so that the next call continues behind it, as the header
         * promises. */
        if ((rc = slot->rc) < 0)
            return ct_fail(err, rc, "%s", slot->err.text);
    }
    rc = ct_sized_write(out, &batch, sizeof batch, "CTRUN_BATCH_INIT", err);
    return rc < 0 ? rc : batch.count > 0;
}

int ctrun_loader_get_stats(struct ctrun_loader *loader, struct ctrun_loader_stats *out,
                           struct ctrun_error *err)
{
    struct ctrun_loader_stats stats = CTRUN_LOADER_STATS_INIT;

    if (!loader)
        return ct_fail_null(err, "loader");
    stats.batches = atomic_load(&loader->batches);
    stats.waits = atomic_load(&loader->waits);
    stats.wait_ns = atomic_load(&loader->wait_ns);
    pthread_mutex_lock(&loader->lock);
    stats.fetch_ns = loader->fetch_ns;
    pthread_mutex_unlock(&loader->lock);
    return ct_sized_write(out, &stats, sizeof stats, "CTRUN_LOADER_STATS_INIT", err);
}
