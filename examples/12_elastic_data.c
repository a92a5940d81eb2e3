/* SPDX-License-Identifier: Apache-2.0 */
/* Each sample of an epoch is trained on once, by ranks of which some are lost: a sampler and a
 * loader of the ranks that are left, begun again behind the samples that were consumed, and a
 * ledger that proves it. Kill some ranks with SIGKILL while it runs, or end it with ctrunctl stop.
 *
 *     cc 12_elastic_data.c -o data $(pkg-config --cflags --libs ctrun)
 *     ctrun --standalone --nproc-per-node=4 --survive=sdk ./data 100000
 *
 * Training is only a sum here: that of the samples' numbers. 07_elastic.c has a model. */
#include <ctrun.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SAMPLES = 1000,
    BATCH = 8 /* of one rank */
};

/* Everything that a rank needs to continue; the same on all ranks after each step. */
enum {
    EPOCH,
    CONSUMED, /* samples of the epoch, of all ranks together */
    SUM,      /* what was trained */
    NUMBERS
};
static uint64_t numbers[NUMBERS];
static struct ctrun_ledger ledger = CTRUN_LEDGER_INIT;
static const struct ctrun_tensor state[] = {
    {.size = sizeof(struct ctrun_tensor),
     .name = "numbers",
     .data = numbers,
     .dtype = CTRUN_I64,
     .dims = 1,
     .sizes = {NUMBERS}},
    {.size = sizeof(struct ctrun_tensor),
     .name = "ledger",
     .data = &ledger,
     .dtype = CTRUN_U8,
     .dims = 1,
     .sizes = {sizeof ledger}},
};

struct job {
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_sampler *all;  /* the order of the epoch, for the ledger; of no rank */
    struct ctrun_sampler *mine; /* this rank's samples */
    struct ctrun_loader *loader;
    uint64_t
        taken; /* samples that the loader has given since it was opened or an epoch began */
    uint64_t steps;
};

/* Sample i is the number i. */
static int fetch(void *context, const uint64_t *indices, size_t count, void *out,
                 struct ctrun_error *err)
{
    uint64_t *samples = out;

    (void)context, (void)err;
    for (size_t i = 0; i < count; i++)
        samples[i] = indices[i];
    return 0;
}

static int create_sampler(struct ctrun_sampler **out, int rank, int size, size_t start,
                          struct ctrun_error *err)
{
    struct ctrun_sampler_options options = CTRUN_SAMPLER_OPTIONS_INIT;
    int rc;

    options.count = SAMPLES;
    options.rank = rank;
    options.world_size = size;
    options.any_order = true;
    if ((rc = ctrun_sampler_create(out, &options, err)) < 0)
        return rc;
    return ctrun_sampler_set_epoch(*out, numbers[EPOCH], start, err);
}

static void close_data(struct job *job)
{
    ctrun_loader_close(job->loader);
    ctrun_sampler_destroy(job->mine);
    ctrun_sampler_destroy(job->all);
    job->loader = NULL;
    job->mine = job->all = NULL;
}

/* For the group's ranks, behind what was consumed. A rank that is new gets the state of the
 * others. */
static int open_data(struct job *job, struct ctrun_error *err)
{
    struct ctrun_loader_options options = CTRUN_LOADER_OPTIONS_INIT;
    int rc = ctrun_group_catch_up(job->world, &job->steps, state, 2, err);

    if (rc < 0 || (rc = create_sampler(&job->all, 0, 1, 0, err)) < 0 ||
        (rc = create_sampler(&job->mine, ctrun_group_rank(job->world),
                             ctrun_group_size(job->world), numbers[CONSUMED], err)) < 0)
        return rc;
    job->taken = 0;
    options.sampler = job->mine;
    options.batch = BATCH;
    options.batch_bytes = BATCH * sizeof(uint64_t);
    options.fetch = fetch;
    return ctrun_loader_open(&job->loader, &options, err);
}

/* All samples were consumed: checks that by position in the ledger, and what was trained by the sum,
 * and begins the next epoch. */
static int end_epoch(struct job *job, struct ctrun_error *err)
{
    int rc = ctrun_ledger_check(&ledger, SAMPLES, err);

    if (rc < 0)
        return rc;
    if (numbers[SUM] != (uint64_t)SAMPLES * (SAMPLES - 1) / 2) {
        fprintf(stderr, "the sum is %llu: not each sample was trained once\n",
                (unsigned long long)numbers[SUM]);
        exit(1);
    }
    if (ctrun_group_rank(job->world) == 0) {
        printf("epoch %llu: each of %llu samples once, sum %llu, %d ranks\n",
               (unsigned long long)numbers[EPOCH], (unsigned long long)ledger.count,
               (unsigned long long)numbers[SUM], ctrun_group_size(job->world));
        fflush(stdout);
    }
    numbers[EPOCH]++;
    numbers[CONSUMED] = numbers[SUM] = job->taken = 0;
    ledger = (struct ctrun_ledger)CTRUN_LEDGER_INIT;
    if ((rc = ctrun_sampler_set_epoch(job->all, numbers[EPOCH], 0, err)) < 0)
        return rc;
    return ctrun_loader_set_epoch(job->loader, numbers[EPOCH], 0, err);
}

/* One step. A step that fails changes nothing of the state. Each rank notes the samples of all
 * ranks, so that the ledger loses nothing with a rank. */
static int train(struct job *job, struct ctrun_error *err)
{
    const uint64_t all = (uint64_t)ctrun_group_size(job->world) * BATCH;
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    uint64_t sum = 0, index;
    int rc = ctrun_loader_next(job->loader, &batch, err);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < batch.count; i++) /* but for the padding */
        if (job->taken + i < ctrun_sampler_real_length(job->mine))
            sum += ((const uint64_t *)batch.data)[i];
    job->taken += batch.count;
    if ((rc = ctrun_all_reduce(job->world, &sum, &sum, 1, CTRUN_I64, CTRUN_SUM, NULL,
                               err)) < 0)
        return rc;
    numbers[SUM] += sum;
    for (uint64_t i = 0; i < all && numbers[CONSUMED] < SAMPLES; i++) {
        index = ctrun_sampler_index(job->all, numbers[CONSUMED]++);
        if ((rc = ctrun_ledger_add(&ledger, &index, 1, err)) < 0)
            return rc;
    }
    ctrun_step(job->session, ++job->steps);
    return numbers[CONSUMED] < SAMPLES ? 0 : end_epoch(job, err);
}

static int is_loss(const struct job *job, int rc)
{
    return (rc == CTRUN_E_PEER_LOST || rc == CTRUN_E_ABORTED) &&
           ctrun_may_shrink(job->session);
}

/* Continues without the lost ranks and with the new ones; more may be lost meanwhile. */
static int go_on(struct job *job, int has_lost, struct ctrun_error *err)
{
    struct ctrun_group *next;
    int rc;

    do {
        close_data(job);
        if (has_lost)
            rc = ctrun_group_shrink(&next, job->session, job->world, NULL, err);
        else
            rc = ctrun_group_grow(&next, job->session, job->world, NULL, err);
        ctrun_group_close(job->world);
        job->world = next;
        if (rc == 0)
            rc = open_data(job, err);
        has_lost = 1;
    } while (job->world && is_loss(job, rc));
    return rc;
}

int main(int argc, char **argv)
{
    const uint64_t epochs = argc > 1 ? strtoull(argv[1], NULL, 10) : 3;
    struct job job = {.steps = 0};
    struct ctrun_error err;
    int rc;

    if (ctrun_open(&job.session, NULL, &err) < 0 ||
        ctrun_group_open(&job.world, job.session, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    rc = open_data(&job, &err);
    for (;;) {
        if (is_loss(&job, rc))
            rc = go_on(&job, 1, &err);
        if (rc < 0)
            return ctrun_fail_worker(&err);
        if (numbers[EPOCH] >= epochs || ctrun_should_stop(job.session))
            break;
        rc = ctrun_should_grow(job.session) ? go_on(&job, 0, &err) : train(&job, &err);
    }
    close_data(&job);
    ctrun_group_close(job.world);
    ctrun_close(job.session);
    return 0;
}
