/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a trainer that reads records of a file in a shuffled order.
 *
 * usage: loader FILE RECORD_BYTES BATCH STEPS COMPUTE_US THREADS     THREADS 0: the step itself reads
 *
 * A step computes for COMPUTE_US of processor time, with the batch that it got. Prints JSON: what
 * share of the time the steps waited for data. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "worker_sdk/base/clock.h"
#include "worker_sdk/include/ctrun.h"

static volatile uint64_t kept;

static uint64_t used_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void compute(const uint8_t *data, size_t bytes, uint64_t us)
{
    const uint64_t end = used_ns() + us * 1000;

    while (used_ns() < end)
        for (size_t i = 0; i < bytes; i += 64)
            kept += data[i];
}

static int fail(const struct ctrun_error *err)
{
    fprintf(stderr, "loader: %s\n", err->text);
    return 1;
}

int main(int argc, char **argv)
{
    struct ctrun_sampler_options order = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_loader_options options = CTRUN_LOADER_OPTIONS_INIT;
    struct ctrun_batch batch = CTRUN_BATCH_INIT;
    struct ctrun_records *records;
    struct ctrun_loader *loader = NULL;
    struct ctrun_sampler *sampler;
    struct ctrun_error err;
    uint64_t number[6] = {0}, begin_ns = 0, wait_ns = 0, *indices;
    uint8_t *own;

    if (argc != 7)
        return 2;
    for (int i = 2; i < argc; i++)
        number[i - 1] = strtoull(argv[i], NULL, 10);
    if (ctrun_records_open(&records, argv[1], 0, number[1], &err) < 0)
        return fail(&err);
    order.count = ctrun_records_count(records);
    order.any_order = true;
    if (ctrun_sampler_create(&sampler, &order, &err) < 0)
        return fail(&err);
    options.sampler = sampler;
    options.batch = number[2];
    options.batch_bytes = number[1] * number[2];
    options.fetch = ctrun_records_fetch;
    options.context = records;
    options.threads = (int)number[5];
    own = malloc(options.batch_bytes);
    indices = malloc(options.batch * sizeof *indices);
    if (!own || !indices || ctrun_sampler_length(sampler) < number[3] * number[2])
        return 2;
    if (number[5] && ctrun_loader_open(&loader, &options, &err) < 0)
        return fail(&err);
    for (uint64_t step = 0; step < number[3]; step++) {
        uint64_t asked_ns = ct_now_ns();
        int rc = 1;

        if (step == 8) { /* the first ones fill the buffers */
            begin_ns = asked_ns;
            wait_ns = 0;
        }
        if (loader) {
            rc = ctrun_loader_next(loader, &batch, &err);
        } else {
            for (size_t i = 0; i < options.batch; i++)
                indices[i] = ctrun_sampler_index(sampler, step * options.batch + i);
            batch.data = own;
            rc = ctrun_records_fetch(records, indices, options.batch, own, &err);
        }
        if (rc < 0)
            return fail(&err);
        wait_ns += ct_now_ns() - asked_ns;
        compute(batch.data, options.batch_bytes, number[4]);
    }
    begin_ns = ct_now_ns() - begin_ns;
    printf("{\"step_ms\": %.3f, \"wait_share\": %.6f}\n",
           (double)begin_ns / 1e6 / (double)(number[3] - 8),
           (double)wait_ns / (double)begin_ns);
    ctrun_loader_close(loader);
    ctrun_sampler_destroy(sampler);
    ctrun_records_close(records);
    free(indices);
    free(own);
    return 0;
}
