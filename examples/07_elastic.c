/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks are lost, and the others continue without them, in the same processes: as 05_ddp.c, with a
 * global batch that is divided among the ranks that are left. Kill some of them with SIGKILL while
 * it runs: only the step in flight is lost, and it is made again.
 *
 *     cc 07_elastic.c -o elastic $(pkg-config --cflags --libs ctrun) -lm
 *     ctrun --standalone --nproc-per-node=4 --survive=sdk ./elastic 100000
 *
 * With --survive-replace=3 killed ranks are started again meanwhile; the others take them in
 * between two steps, and send them their state. A second number is the minimum time of a step, in
 * µs, as if there was more to compute. */
#define _POSIX_C_SOURCE 200809L /* nanosleep() */
#include <ctrun.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    SLOPE,
    OFFSET,
    PARAMS,
    BATCH = 64, /* samples of a step, on all ranks together */
    AT_ONCE = 16
};

static double values[PARAMS], momentum[PARAMS];

#define PARAM(NAME, at)                                                                \
    {                                                                                  \
        .size = sizeof(struct ctrun_param), .name = (NAME), .data = &values[at],       \
        .dtype = CTRUN_F64, .dims = 1, .sizes = {1},                                   \
    }
static const struct ctrun_param params[] = {PARAM("slope", SLOPE),
                                            PARAM("offset", OFFSET)};

/* Everything that a rank needs to continue: the parameters, and the optimizer's state. */
#define TENSOR(NAME, array)                                                            \
    {                                                                                  \
        .size = sizeof(struct ctrun_tensor), .name = (NAME), .data = (array),          \
        .dtype = CTRUN_F64, .dims = 1, .sizes = {PARAMS},                              \
    }
static const struct ctrun_tensor state[] = {TENSOR("values", values),
                                            TENSOR("momentum", momentum)};

struct job {
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_ddp *ddp;
    uint64_t steps; /* made so far */
    uint64_t last;
    uint64_t pace_us; /* of a step, at least */
};

static int create_ddp(struct job *job, struct ctrun_error *err)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;

    options.divide_by_caller = true; /* each sample by the global batch */
    return ctrun_ddp_create(&job->ddp, job->world, params, PARAMS, &options, err);
}

/* Adds the gradients of count samples of y = 3 x - 1. */
static int backward(struct ctrun_ddp *ddp, size_t start, size_t count, int is_first,
                    struct ctrun_error *err)
{
    double *slope, *offset;
    int rc = ctrun_ddp_forward_begin(ddp, err);

    if (rc < 0 || (is_first && (rc = ctrun_ddp_zero_grad(ddp, NULL, err)) < 0) ||
        (rc = ctrun_ddp_backward_begin(ddp, NULL, err)) < 0)
        return rc;
    slope = ctrun_ddp_grad(ddp, SLOPE);
    offset = ctrun_ddp_grad(ddp, OFFSET);
    for (size_t i = start; i < start + count; i++) {
        const double x = (double)i / BATCH;
        const double error = values[SLOPE] * x + values[OFFSET] - (3 * x - 1);

        *slope += 2 * error * x / BATCH;
        *offset += 2 * error / BATCH;
    }
    if ((rc = ctrun_ddp_grad_ready(ddp, OFFSET, NULL, err)) < 0 ||
        (rc = ctrun_ddp_grad_ready(ddp, SLOPE, NULL, err)) < 0)
        return rc;
    return ctrun_ddp_backward_end(ddp, NULL, err);
}

/* One step. A step that fails changes nothing. */
static int train(struct job *job, struct ctrun_error *err)
{
    struct ctrun_batch_plan plan = CTRUN_BATCH_PLAN_INIT;
    const int size = ctrun_group_size(job->world);
    size_t start, count;
    int rc = ctrun_batch_plan(&plan, BATCH, AT_ONCE, ctrun_group_rank(job->world), size,
                              err);

    for (size_t i = 0; rc == 0 && i < plan.micros; i++) {
        ctrun_ddp_no_sync(job->ddp, i + 1 < plan.micros);
        if ((rc = ctrun_batch_micro(&plan, i, &start, &count, err)) == 0)
            rc = backward(job->ddp, start, count, i == 0, err);
    }
    if (rc < 0)
        return rc;
    for (size_t p = 0; p < PARAMS; p++) {
        momentum[p] = 0.9 * momentum[p] + *(double *)ctrun_ddp_grad(job->ddp, p);
        values[p] -= 8.0 / (double)job->last * momentum[p];
    }
    if (job->pace_us > 0)
        (void)nanosleep(&(struct timespec){(time_t)(job->pace_us / 1000000),
                                           (long)(job->pace_us % 1000000 * 1000)},
                        NULL);
    job->steps++;
    ctrun_step(job->session, job->steps);
    if (job->steps % 1000 == 0 && ctrun_group_rank(job->world) == 0) {
        printf("step %llu, %d ranks\n", (unsigned long long)job->steps, size);
        fflush(stdout);
    }
    return 0;
}

static int is_loss(const struct job *job, int rc)
{
    return (rc == CTRUN_E_PEER_LOST || rc == CTRUN_E_ABORTED) &&
           ctrun_may_shrink(job->session);
}

/* Creates what belongs to a new group. A rank that is new gets the state of the others. */
static int begin(struct job *job, struct ctrun_error *err)
{
    const int rc = ctrun_group_catch_up(job->world, &job->steps, state, 2, err);

    return rc < 0 ? rc : create_ddp(job, err);
}

/* Continues without the lost ranks and with the new ones; more may be lost meanwhile. */
static int go_on(struct job *job, int has_lost, struct ctrun_error *err)
{
    struct ctrun_group *next;
    int rc;

    do {
        ctrun_ddp_destroy(job->ddp);
        job->ddp = NULL;
        if (has_lost)
            rc = ctrun_group_shrink(&next, job->session, job->world, NULL, err);
        else
            rc = ctrun_group_grow(&next, job->session, job->world, NULL, err);
        ctrun_group_close(job->world);
        job->world = next;
        if (rc == 0)
            rc = begin(job, err);
        has_lost = 1;
    } while (job->world && is_loss(job, rc));
    return rc;
}

/* One step, or the change of the group; *is_over: all steps are made, or the run must stop. */
static int proceed(struct job *job, int *is_over, struct ctrun_error *err)
{
    *is_over = job->steps >= job->last || ctrun_should_stop(job->session);
    if (*is_over)
        return ctrun_ddp_check_replicas(job->ddp, err);
    if (ctrun_should_grow(job->session))
        return go_on(job, 0, err);
    return train(job, err);
}

static int is_number(const char *text, uint64_t *out)
{
    char *end;

    *out = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end;
}

int main(int argc, char **argv)
{
    struct job job = {.last = 200};
    struct ctrun_error err;
    int is_over = 0, rc;

    if (argc > 3 || (argc > 1 && !is_number(argv[1], &job.last)) ||
        (argc > 2 && !is_number(argv[2], &job.pace_us))) {
        fprintf(stderr, "usage: %s [STEPS [PACE]]\n", argv[0]);
        return 2;
    }

    if (ctrun_open(&job.session, NULL, &err) < 0 ||
        ctrun_group_open(&job.world, job.session, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    rc = begin(&job, &err);
    while (!is_over || rc < 0) {
        if (is_loss(&job, rc)) {
            is_over = 0;
            rc = go_on(&job, 1, &err);
        }
        if (rc < 0)
            return ctrun_fail_worker(&err);
        rc = proceed(&job, &is_over, &err);
    }
    if (ctrun_group_rank(job.world) == 0)
        printf("y = %.2f x + %.2f after %llu steps (%.15f, %.15f)\n", values[SLOPE],
               values[OFFSET], (unsigned long long)job.steps, values[SLOPE],
               values[OFFSET]);
    ctrun_ddp_destroy(job.ddp);
    ctrun_group_close(job.world);
    ctrun_close(job.session);
    return fabs(values[SLOPE] - 3) < 0.1 && fabs(values[OFFSET] + 1) < 0.1 ? 0 : 1;
}
