/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO-1: as 05_ddp.c, but the optimizer has momentum, and each rank keeps the momentum of its
 * share of the parameters only. All parameters are in one array, so that sharing them needs no
 * copy.
 *
 *     cc 06_zero.c -o zero $(pkg-config --cflags --libs ctrun) -lm
 *     ctrun --standalone --nproc-per-node=2 ./zero */
#include <ctrun.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SLOPE,
    OFFSET,
    PARAMS,
    SAMPLES = 64,
    STEPS = 200
};

static float values[PARAMS];
static const struct ctrun_param params[] = {
    {.size = sizeof(struct ctrun_param),
     .name = "slope",
     .data = &values[SLOPE],
     .dtype = CTRUN_F32,
     .dims = 1,
     .sizes = {1}},
    {.size = sizeof(struct ctrun_param),
     .name = "offset",
     .data = &values[OFFSET],
     .dtype = CTRUN_F32,
     .dims = 1,
     .sizes = {1}},
};

/* The gradients over this rank's samples of y = 3 x - 1, averaged over all ranks. */
static int backward(struct ctrun_ddp *ddp, int rank, int size, struct ctrun_error *err)
{
    float slope = 0, offset = 0, mine = 0;
    int rc;

    for (int i = rank; i < SAMPLES; i += size, mine++) {
        float x = (float)i / SAMPLES;
        float error = values[SLOPE] * x + values[OFFSET] - (3 * x - 1);

        slope += 2 * error * x;
        offset += 2 * error;
    }
    if ((rc = ctrun_ddp_forward_begin(ddp, err)) < 0 ||
        (rc = ctrun_ddp_backward_begin(ddp, NULL, err)) < 0)
        return rc;
    *(float *)ctrun_ddp_grad(ddp, OFFSET) = offset / mine;
    if ((rc = ctrun_ddp_grad_ready(ddp, OFFSET, NULL, err)) < 0)
        return rc;
    *(float *)ctrun_ddp_grad(ddp, SLOPE) = slope / mine;
    if ((rc = ctrun_ddp_grad_ready(ddp, SLOPE, NULL, err)) < 0)
        return rc;
    return ctrun_ddp_backward_end(ddp, NULL, err);
}

/* Updates our pieces, and receives the other ranks' pieces. momentum: ctrun_zero_length()
 * elements. */
static int update(struct ctrun_zero *zero, struct ctrun_ddp *ddp, float *momentum,
                  struct ctrun_error *err)
{
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;

    for (size_t i = 0; ctrun_zero_piece(zero, i, &piece, err) > 0; i++) {
        float *value = (float *)params[piece.param].data + piece.offset;
        float *grad = (float *)ctrun_ddp_grad(ddp, piece.param) + piece.offset;
        float *m = momentum + piece.state;

        for (size_t k = 0; k < piece.length; k++) {
            m[k] = 0.9f * m[k] + grad[k];
            value[k] -= 0.05f * m[k];
        }
    }
    return ctrun_zero_share(zero, NULL, err);
}

int main(void)
{
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_zero *zero;
    struct ctrun_ddp *ddp;
    struct ctrun_error err;
    float *momentum;

    if (ctrun_open(&session, NULL, &err) < 0 ||
        ctrun_group_open(&world, session, NULL, &err) < 0 ||
        ctrun_ddp_create(&ddp, world, params, PARAMS, NULL, &err) < 0 ||
        ctrun_zero_create(&zero, world, params, PARAMS, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    momentum = calloc(ctrun_zero_length(zero) + 1, sizeof *momentum);
    for (uint64_t step = 0; step < STEPS && !ctrun_should_stop(session); step++) {
        if (backward(ddp, ctrun_rank(session), ctrun_world_size(session), &err) < 0 ||
            update(zero, ddp, momentum, &err) < 0)
            return ctrun_fail_worker(&err);
        ctrun_step(session, step);
    }
    if (ctrun_rank(session) == 0)
        printf("y = %.2f x + %.2f\n", (double)values[SLOPE], (double)values[OFFSET]);
    free(momentum);
    ctrun_zero_destroy(zero);
    ctrun_ddp_destroy(ddp);
    ctrun_group_close(world);
    ctrun_close(session);
    return fabsf(values[SLOPE] - 3) < 0.1f && fabsf(values[OFFSET] + 1) < 0.1f ? 0 : 1;
}
