/* SPDX-License-Identifier: Apache-2.0 */
/* Loader, records and ledger. For any order of the threads, each sample comes once, in the
 * sampler's order. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/client/progress.h"
#include "worker_sdk/include/ctrun.h"
#include "worker_sdk/wire/progress.h"

enum {
    COUNT = 1003,
    BATCH = 10
};

/* A source; each sample is ten times its index. */
struct source {
    _Atomic unsigned fetched; /* batches */
    uint64_t bad;             /* this sample cannot be fetched */
    pthread_mutex_t gate;     /* while it is locked no fetch ends */
    _Atomic int policy;       /* scheduling policy of the thread that fetched last */
};

static int fetch(void *context, const uint64_t *indices, size_t count, void *out,
                 struct ctrun_error *err)
{
    struct source *source = context;
    struct sched_param parameter;
    int policy;

    if (pthread_getschedparam(pthread_self(), &policy, &parameter) == 0)
        atomic_store(&source->policy, policy);
    atomic_fetch_add(&source->fetched, 1);
    pthread_mutex_lock(&source->gate);
    pthread_mutex_unlock(&source->gate);
    for (size_t i = 0; i < count; i++) {
        if (indices[i] == source->bad) {
            (void)ct_format(err->text, sizeof err->text, "sample %d is torn", 77);
            return CTRUN_E_BAD_DATA;
        }
        ((uint64_t *)out)[i] = 10 * indices[i];
    }
    return 0;
}

struct rig {
    struct source source;
    struct ctrun_sampler *sampler;
    struct ctrun_loader_options options;
    struct ctrun_loader *loader;
};

static int setup(void **state)
{
    struct ctrun_sampler_options options = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_loader_options init = CTRUN_LOADER_OPTIONS_INIT;
    struct rig *rig = calloc(1, sizeof *rig);

    *state = rig;
    rig->source.bad = UINT64_MAX;
    pthread_mutex_init(&rig->source.gate, NULL);
    options.count = COUNT;
    options.any_order = true;
    rig->options = init;
    rig->options.batch = BATCH;
    rig->options.batch_bytes = BATCH * sizeof(uint64_t);
    rig->options.fetch = fetch;
    rig->options.context = &rig->source;
    return ctrun_sampler_create(&rig->options.sampler, &options, NULL);
}

static int teardown(void **state)
{
    struct rig *rig = *state;

    ctrun_loader_close(rig->loader);
    ctrun_sampler_destroy(rig->options.sampler);
    free(rig);
    return 0;
}

static void open_loader(struct rig *rig)
{
    struct ctrun_error err;

    if (ctrun_loader_open(&rig->loader, &rig->options, &err) < 0)
        fail_msg("%s", err.text);
}

/* The code with which a forked child exits that runs `body`. */
static int exit_of_child(int (*body)(void))
{
    const pid_t child = fork();
    int status;

    assert_true(child >= 0);
    if (child == 0)
        _exit(body());
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int count_metrics(void)
{
    static struct ct_progress page;

    return pread(ct_progress_open(), &page, sizeof page, 0) == sizeof page
               ? (int)page.metric_count
               : -1;
}

static int count_metrics_and_one(void)
{
    return ct_progress_metric("late", 1) == 0 ? count_metrics() : -1;
}

/* This test is the first one here: nothing has made the page yet. */
TEST(what_was_measured_before_the_page_is_made_is_on_it)
{
    struct ct_progress page;

    assert_int_equal(ct_progress_metric("early", 2.5), 0);
    assert_int_equal(exit_of_child(count_metrics), 0);
    assert_int_equal(exit_of_child(count_metrics_and_one), 1);
    assert_int_equal(pread(ct_progress_open(), &page, sizeof page, 0), sizeof page);
    assert_int_equal(page.metric_count, 1);
    assert_string_equal(page.metrics[0].name, "early");
    assert_true(ct_metric_from_bits(page.metrics[0].bits) == 2.5);
}

/* Reads the rest of the epoch, from sample `at` of its order on; returns the position after it. */
static size_t drain(struct rig *rig, size_t at)
{
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct ctrun_error err;
    int rc;

    while ((rc = ctrun_loader_next(rig->loader, &batch, &err)) == 1)
        for (size_t i = 0; i < batch.count; i++, at++) {
            assert_int_equal(batch.indices[i],
                             ctrun_sampler_index(rig->options.sampler, at));
            assert_int_equal(((uint64_t *)batch.data)[i], 10 * batch.indices[i]);
        }
    if (rc < 0)
        fail_msg("%s", err.text);
    return at;
}

TEST_AROUND(batches_come_in_order_from_any_number_of_threads, setup, teardown)
{
    struct rig *rig = *state;

    for (rig->options.threads = 1; rig->options.threads <= 8;
         rig->options.threads *= 2) {
        struct ctrun_loader_stats stats = CTRUN_LOADER_STATS_INIT;
        open_loader(rig);
        assert_int_equal(drain(rig, 0), COUNT);
        assert_int_equal(drain(rig, COUNT), COUNT); /* it stays at the end */
        assert_int_equal(ctrun_loader_get_stats(rig->loader, &stats, NULL), 0);
        assert_int_equal(stats.batches, (COUNT + BATCH - 1) / BATCH);
        ctrun_loader_close(rig->loader);
        rig->loader = NULL;
    }
}

TEST_AROUND(batches_come_in_order_at_any_depth, setup, teardown)
{
    struct rig *rig = *state;

    for (rig->options.depth = 1; rig->options.depth <= 9; rig->options.depth++) {
        rig->options.threads = 1 + rig->options.depth % 3;
        open_loader(rig);
        assert_int_equal(drain(rig, 0), COUNT);
        ctrun_loader_close(rig->loader);
        rig->loader = NULL;
    }
}

static void await_fetched(struct rig *rig, unsigned count)
{
    const uint64_t end_ms = ct_deadline_ms(RANKS_DEADLINE_MS);

    while (atomic_load(&rig->source.fetched) < count) {
        if (ct_now_ms() >= end_ms)
            fail_msg("%u batches, not %u", atomic_load(&rig->source.fetched), count);
        sched_yield();
    }
}

/* Sleeping threads are woken while batches are left, not only when one is missing. */
TEST_AROUND(threads_go_on_before_all_is_used_up, setup, teardown)
{
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct rig *rig = *state;

    rig->options.depth = 5;
    open_loader(rig);
    await_fetched(rig, 6);
    for (unsigned taken = 1; taken <= 30; taken++) {
        assert_int_equal(ctrun_loader_next(rig->loader, &batch, NULL), 1);
        if (taken % 3 == 1)
            await_fetched(rig, taken + 5);
    }
}

TEST_AROUND(a_struct_without_its_size_takes_no_batch, setup, teardown)
{
    struct ctrun_batch batch = CTRUN_BATCH_INIT, wrong = {.size = 0};
    struct rig *rig = *state;

    open_loader(rig);
    assert_int_equal(ctrun_loader_next(rig->loader, &wrong, NULL), -EINVAL);
    assert_int_equal(ctrun_loader_next(rig->loader, &batch, NULL), 1);
    assert_int_equal(batch.indices[0], ctrun_sampler_index(rig->options.sampler, 0));
}

/* A woken thread must not take the processor from the step. */
TEST_AROUND(threads_do_not_take_the_processor_from_the_step, setup, teardown)
{
    struct rig *rig = *state;

    open_loader(rig);
    await_fetched(rig, 1);
    assert_int_equal(rig->source.policy, SCHED_BATCH);
}

/* What an agent reads after the death of this process. */
TEST_AROUND(what_is_worked_on_is_on_the_page_of_the_process, setup, teardown)
{
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct rig *rig = *state;
    struct ct_progress_samples page;
    const int fd = ct_progress_open();

    open_loader(rig);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ctrun_loader_next(rig->loader, &batch, NULL), 1);
        assert_int_equal(
            pread(fd, &page, sizeof page, offsetof(struct ct_progress, samples)),
            sizeof page);
        assert_int_equal(page.sequence % 2, 0);
        assert_int_equal(page.total, BATCH);
        assert_int_equal(page.count, BATCH);
        assert_memory_equal(page.ids, batch.indices, BATCH * sizeof *page.ids);
    }
}

/* The metric of this process; 0 where it has none yet. */
static double waited_seconds(void)
{
    static struct ct_progress page;
    const int fd = ct_progress_open();

    assert_int_equal(pread(fd, &page, sizeof page, 0), sizeof page);
    for (uint64_t i = 0; i < page.metric_count; i++)
        if (strcmp(page.metrics[i].name, "data_wait_seconds") == 0)
            return ct_metric_from_bits(page.metrics[i].bits);
    return 0;
}

static int wait_in_child(void)
{
    ct_progress_data_wait(1000000000); /* the page is the parent's */
    (void)ct_progress_open();
    ct_progress_data_wait(500000000);
    return waited_seconds() == 1.5 ? 0 : 1;
}

TEST(a_child_counts_what_it_waited_itself)
{
    double before;

    ct_progress_data_wait(250000000);
    before = waited_seconds();
    assert_int_equal(exit_of_child(wait_in_child), 0);
    assert_true(before >= 0.25 && waited_seconds() == before);
}

TEST_AROUND(an_epoch_begins_anew_or_where_it_was_left, setup, teardown)
{
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct rig *rig = *state;

    rig->options.threads = 3;
    open_loader(rig);
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        for (uint64_t i = 0; i < epoch; i++) /* the epoch is left in the middle */
            assert_int_equal(ctrun_loader_next(rig->loader, &batch, NULL), 1);
        assert_int_equal(ctrun_loader_set_epoch(rig->loader, epoch, 500, NULL), 0);
        assert_int_equal(drain(rig, 0), COUNT - 500);
        assert_int_equal(ctrun_loader_set_epoch(rig->loader, epoch + 1, 0, NULL), 0);
    }
    assert_int_equal(ctrun_loader_set_epoch(rig->loader, 0, COUNT, NULL), 0);
    assert_int_equal(drain(rig, 0), 0);
}

/* Not more batches are made than `depth`, plus the one that the caller has. */
TEST_AROUND(no_more_than_depth_batches_are_made_ahead, setup, teardown)
{
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct rig *rig = *state;

    rig->options.threads = 4;
    rig->options.depth = 2;
    open_loader(rig);
    for (unsigned taken = 1; taken <= 20; taken++) {
        assert_int_equal(ctrun_loader_next(rig->loader, &batch, NULL), 1);
        assert_in_range(rig->source.fetched, taken, taken + 2);
    }
}

TEST_AROUND(what_cannot_be_fetched_is_told_when_it_is_due, setup, teardown)
{
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct rig *rig = *state;
    struct ctrun_error err;
    unsigned good = 0, bad = 0;
    int rc;

    rig->options.threads = 4;
    rig->source.bad = ctrun_sampler_index(rig->options.sampler, 3 * BATCH + 4);
    open_loader(rig);
    while ((rc = ctrun_loader_next(rig->loader, &batch, &err)) != 0) {
        if (rc < 0) {
            assert_int_equal(rc, CTRUN_E_BAD_DATA);
            assert_int_equal(err.code, CTRUN_E_BAD_DATA);
            assert_string_equal(err.text, "loader: batch 3: sample 77 is torn");
            assert_int_equal(good, 3);
            bad++;
        } else {
            good++;
        }
    }
    assert_int_equal(bad, 1);
    assert_int_equal(good, (COUNT + BATCH - 1) / BATCH - 1);
}

static int fail_silently(void *context, const uint64_t *indices, size_t count,
                         void *out, struct ctrun_error *err)
{
    return -ENXIO;
}

TEST_AROUND(a_fetch_that_fails_without_a_text_gets_one, setup, teardown)
{
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct rig *rig = *state;
    struct ctrun_error err;

    rig->options.fetch = fail_silently;
    open_loader(rig);
    assert_int_equal(ctrun_loader_next(rig->loader, &batch, &err), -ENXIO);
    assert_string_equal(err.text,
                        "loader: batch 0: fetch returned -6 without a reason");
}

TEST_AROUND(a_fetch_that_does_not_end_is_a_timeout, setup, teardown)
{
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct ctrun_loader_stats stats = CTRUN_LOADER_STATS_INIT;
    struct rig *rig = *state;
    const double before = waited_seconds();
    struct ctrun_error err;

    pthread_mutex_lock(&rig->source.gate);
    rig->options.timeout_ms = 20;
    open_loader(rig);
    assert_int_equal(ctrun_loader_next(rig->loader, &batch, &err), CTRUN_E_TIMEOUT);
    assert_int_equal(ctrun_loader_set_epoch(rig->loader, 1, 0, &err), CTRUN_E_TIMEOUT);
    assert_int_equal(ctrun_loader_get_stats(rig->loader, &stats, NULL), 0);
    assert_int_equal(stats.waits, 1);
    assert_true(stats.wait_ns > 0);
    pthread_mutex_unlock(&rig->source.gate);
    assert_true(fabs(waited_seconds() - before - (double)stats.wait_ns / 1e9) < 1e-9);
}

/* Locked: the process is stopped in its first wait, its thread makes the batch meanwhile, and then the
 * deadline is over. */
static pthread_mutex_t *stops;
bool __real_ct_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                         uint64_t deadline_ms);
bool __wrap_ct_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                         uint64_t deadline_ms);
bool __wrap_ct_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                         uint64_t deadline_ms)
{
    if (!stops)
        return __real_ct_cond_wait(cond, mutex, deadline_ms);
    pthread_mutex_unlock(stops);
    stops = NULL;
    assert_true(__real_ct_cond_wait(cond, mutex, ct_deadline_ms(RANKS_DEADLINE_MS)));
    return false;
}

TEST_AROUND(a_batch_made_while_the_process_was_stopped_counts, setup, teardown)
{
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct rig *rig = *state;
    struct ctrun_error err = {.text = ""};

    stops = &rig->source.gate;
    pthread_mutex_lock(stops);
    open_loader(rig);
    if (ctrun_loader_next(rig->loader, &batch, &err) != 1)
        fail_msg("%s", err.text);
    assert_null(stops);
}

TEST_AROUND(the_callers_memory_is_used, setup, teardown)
{
    uint64_t memory[5 * BATCH];
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct rig *rig = *state;

    rig->options.memory = memory;
    open_loader(rig);
    assert_int_equal(ctrun_loader_next(rig->loader, &batch, NULL), 1);
    assert_ptr_equal(batch.data, memory);
    assert_int_equal(drain(rig, BATCH), COUNT);
}

TEST_AROUND(wrong_options_are_refused, setup, teardown)
{
    struct rig *rig = *state;
    struct ctrun_loader_options right = rig->options;

    rig->options.batch = 0;
    assert_int_equal(ctrun_loader_open(&rig->loader, &rig->options, NULL), -EINVAL);
    rig->options = right;
    rig->options.threads = 0;
    assert_int_equal(ctrun_loader_open(&rig->loader, &rig->options, NULL), -EINVAL);
    rig->options = right;
    rig->options.batch = SIZE_MAX / 4;
    assert_int_equal(ctrun_loader_open(&rig->loader, &rig->options, NULL), -EINVAL);
    rig->options = right;
    rig->options.size = 0;
    assert_int_equal(ctrun_loader_open(&rig->loader, &rig->options, NULL), -EINVAL);
    rig->options = right;
    for (size_t n = 1; n <= 5; n++) {
        ct_alloc_fail_at(n);
        assert_int_equal(ctrun_loader_open(&rig->loader, &rig->options, NULL), -ENOMEM);
    }
    ct_alloc_fail_at(0);
}

TEST_AROUND(records_are_read_in_any_order, setup, teardown)
{
    char path[] = "/tmp/ctrun_records_XXXXXX";
    int fd = mkstemp(path);
    struct ctrun_records *records;
    struct ctrun_error err;
    uint64_t sample[BATCH], past = COUNT;
    struct rig *rig = *state;

    assert_int_equal(write(fd, "HEADER", 6), 6);
    for (uint64_t i = 0; i < COUNT; i++) {
        sample[0] = 10 * i;
        assert_int_equal(write(fd, sample, 8), 8);
    }
    assert_int_equal(ctrun_records_open(&records, path, 5, 8, &err), CTRUN_E_BAD_DATA);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(ctrun_records_open(&records, "/nowhere", 6, 8, &err),
                     CTRUN_E_BAD_DATA);
    assert_int_equal(ctrun_records_open(&records, "/tmp", 6, 8, &err),
                     CTRUN_E_BAD_DATA);
    if (ctrun_records_open(&records, path, 6, 8, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(ctrun_records_count(records), COUNT);
    assert_int_equal(ctrun_records_fetch(records, &past, 1, sample, &err), -EINVAL);
    rig->options.fetch = ctrun_records_fetch;
    rig->options.context = records;
    rig->options.threads = 2;
    open_loader(rig);
    assert_int_equal(drain(rig, 0), COUNT);
    assert_int_equal(ftruncate(fd, 6 + 8 * 1000), 0);
    past = 1001;
    assert_int_equal(ctrun_records_fetch(records, &past, 1, sample, &err),
                     CTRUN_E_BAD_DATA);
    ctrun_loader_close(rig->loader);
    rig->loader = NULL;
    ctrun_records_close(records);
    close(fd);
    unlink(path);
}

/* ---- Ledger ------------------------------------------------------------------------------- */

static int ledger_code(const uint64_t *indices, size_t count, uint64_t wanted)
{
    struct ctrun_ledger ledger = CTRUN_LEDGER_INIT;

    assert_int_equal(ctrun_ledger_add(&ledger, indices, count, NULL), 0);
    return ctrun_ledger_check(&ledger, wanted, NULL);
}

TEST(a_ledger_knows_missing_and_repeated_samples)
{
    static const uint64_t all[] = {3, 1, 4, 0, 2}, twice[] = {3, 1, 4, 1, 2},
                          far[] = {3, 1, 4, 0, 5};

    assert_int_equal(ledger_code(all, 5, 5), 0);
    assert_int_equal(ledger_code(all, 4, 5), CTRUN_E_MISMATCH);
    assert_int_equal(ledger_code(all, 5, 4), CTRUN_E_MISMATCH);
    assert_int_equal(ledger_code(twice, 5, 5), CTRUN_E_MISMATCH);
    assert_int_equal(ledger_code(far, 5, 5), CTRUN_E_MISMATCH);
    assert_int_equal(ledger_code(NULL, 0, 0), 0);
    assert_int_equal(
        ctrun_ledger_add(&(struct ctrun_ledger)CTRUN_LEDGER_INIT, NULL, 1, NULL),
        -EINVAL);
}

TEST(a_ledger_goes_through_a_text)
{
    static const uint64_t indices[] = {3, 1, 4};
    static const char *const wrong[] = {
        "",
        "3",
        "3 ",
        "x 0",
        "3 12345678901234567890123456789012x",
        "3 1234567890123456789012345678901g",
        "99999999999999999999 12345678901234567890123456789012"};
    struct ctrun_ledger ledger = CTRUN_LEDGER_INIT, back = CTRUN_LEDGER_INIT;
    char text[CTRUN_LEDGER_TEXT_MAX];

    assert_int_equal(ctrun_ledger_add(&ledger, indices, 3, NULL), 0);
    assert_int_equal(ctrun_ledger_format(&ledger, text, sizeof text, NULL), 0);
    assert_int_equal(ctrun_ledger_format(&ledger, text, 10, NULL), -ENAMETOOLONG);
    assert_int_equal(ctrun_ledger_format(&ledger, text, sizeof text, NULL), 0);
    assert_int_equal(ctrun_ledger_parse(&back, text, NULL), 0);
    assert_memory_equal(&back, &ledger, sizeof ledger);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(ctrun_ledger_parse(&back, wrong[i], NULL),
                         CTRUN_E_BAD_CHECKPOINT);
}

/* One world's part of an epoch: as many global batches as fit from `start` to `end`. */
struct shift {
    size_t start, end;
    char text[CTRUN_LEDGER_TEXT_MAX]; /* the ledger so far; rank 0 has it */
    char *after;                      /* shared with the ranks */
};

static int work_shift(int rank, void *context)
{
    const struct shift *shift = context;
    struct ctrun_sampler_options options = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_ledger ledger = CTRUN_LEDGER_INIT, total = CTRUN_LEDGER_INIT;
    struct ctrun_ledger wrong = {.size = 0};
    struct ctrun_group *group = ranks_open(rank, "a", NULL);
    struct ctrun_sampler *sampler;
    struct ctrun_error err;

    options.count = COUNT;
    options.rank = rank;
    options.world_size = ctrun_group_size(group);
    options.any_order = true;
    CHECK_OK(ctrun_sampler_create(&sampler, &options, &err));
    CHECK_OK(ctrun_sampler_set_epoch(sampler, 2, shift->start, &err));
    if (rank == 0 && *shift->text)
        CHECK_OK(ctrun_ledger_parse(&ledger, shift->text, &err));
    for (size_t i = 0; i < ctrun_sampler_length(sampler); i++) {
        const uint64_t index = ctrun_sampler_index(sampler, i);
        if (shift->start + i * (size_t)options.world_size + (size_t)rank < shift->end)
            CHECK_OK(ctrun_ledger_add(&ledger, &index, 1, &err));
    }
    if (rank == 0) /* alone: the others wait for the next call */
        CHECK(ctrun_ledger_total(&ledger, group, &wrong, &err) == -EINVAL);
    CHECK_OK(ctrun_ledger_total(&ledger, group, &total, &err));
    CHECK_OK(
        rank ? 0 : ctrun_ledger_format(&total, shift->after, sizeof shift->text, &err));
    if (shift->end == COUNT)
        CHECK_OK(ctrun_ledger_check(&total, COUNT, &err));
    else
        CHECK(ctrun_ledger_check(&total, COUNT, &err) == CTRUN_E_MISMATCH);
    ctrun_sampler_destroy(sampler);
    ctrun_group_close(group);
    return 0;
}

TEST(an_epoch_over_restarts_and_worlds_has_each_sample_once)
{
    static const int sizes[] = {2, 3, 1};
    static const size_t ends[] = {400, 650, COUNT};
    char *shared = mmap(NULL, CTRUN_LEDGER_TEXT_MAX, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct shift shift = {.after = shared};

    assert_ptr_not_equal(shared, MAP_FAILED);

    for (int i = 0; i < 3; i++) {
        shift.end = ends[i];
        assert_int_equal(ranks_run(sizes[i], work_shift, &shift), 0);
        memcpy(shift.text, shared, sizeof shift.text);
        shift.start = shift.end;
    }
}
