/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient reducer: as 04_average_gradients.c, but the gradients are written straight into the
 * library's buckets, and each bucket is reduced as soon as it is full, while the rest of the
 * backward pass still computes.
 *
 *     cc 05_ddp.c -o ddp $(pkg-config --cflags --libs ctrun) -lm
 *     ctrun --standalone --nproc-per-node=2 ./ddp */
#include <ctrun.h>
#include <math.h>
#include <stdio.h>

enum {
    SAMPLES = 64,
    STEPS = 200
};

static float slope, offset;
static const struct ctrun_param params[] = {
    {.size = sizeof(struct ctrun_param),
     .name = "slope",
     .data = &slope,
     .dtype = CTRUN_F32,
     .dims = 1,
     .sizes = {1}},
    {.size = sizeof(struct ctrun_param),
     .name = "offset",
     .data = &offset,
     .dtype = CTRUN_F32,
     .dims = 1,
     .sizes = {1}},
};

/* One step over this rank's samples of y = 3 x - 1. */
static int train(struct ctrun_ddp *ddp, int rank, int size, struct ctrun_error *err)
{
    float *gradient[2], mine = 0;
    int rc;

    if ((rc = ctrun_ddp_forward_begin(ddp, err)) < 0)
        return rc;
    ctrun_ddp_zero_grad(ddp, NULL, NULL);
    gradient[0] = ctrun_ddp_grad(ddp, 0); /* where it must go; ask in every step */
    gradient[1] = ctrun_ddp_grad(ddp, 1);
    if ((rc = ctrun_ddp_backward_begin(ddp, NULL, err)) < 0)
        return rc;
    for (int i = rank; i < SAMPLES; i += size, mine++) {
        float x = (float)i / SAMPLES;
        float error = slope * x + offset - (3 * x - 1);

        *gradient[0] += 2 * error * x;
        *gradient[1] += 2 * error;
    }
    *gradient[0] /= mine;
    *gradient[1] /= mine;
    /* In the order in which backward completes them: from the last layer to the first. */
    if ((rc = ctrun_ddp_grad_ready(ddp, 1, NULL, err)) < 0 ||
        (rc = ctrun_ddp_grad_ready(ddp, 0, NULL, err)) < 0 ||
        (rc = ctrun_ddp_backward_end(ddp, NULL, err)) < 0)
        return rc;
    slope -= 0.5f * *gradient[0]; /* averages over all ranks by now */
    offset -= 0.5f * *gradient[1];
    return 0;
}

int main(void)
{
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_ddp *ddp;
    struct ctrun_error err;

    if (ctrun_open(&session, NULL, &err) < 0 ||
        ctrun_group_open(&world, session, NULL, &err) < 0 ||
        ctrun_ddp_create(&ddp, world, params, 2, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    for (uint64_t step = 0; step < STEPS && !ctrun_should_stop(session); step++) {
        if (train(ddp, ctrun_rank(session), ctrun_world_size(session), &err) < 0)
            return ctrun_fail_worker(&err);
        ctrun_step(session, step);
    }
    if (ctrun_rank(session) == 0)
        printf("y = %.2f x + %.2f\n", (double)slope, (double)offset);
    ctrun_ddp_destroy(ddp);
    ctrun_group_close(world);
    ctrun_close(session);
    return fabsf(slope - 3) < 0.1f && fabsf(offset + 1) < 0.1f ? 0 : 1;
}
