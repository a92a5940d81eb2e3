/* SPDX-License-Identifier: Apache-2.0 */
/* Pipeline parallelism: each rank has one layer of the model. Activations go to the next rank and
 * gradients come back, and while one rank computes a micro-batch, the other ranks compute others
 * ("one forward, one backward").
 *
 *     cc 08_pipeline.c -o pipeline $(pkg-config --cflags --libs ctrun)
 *     ctrun --standalone --nproc-per-node=3 ./pipeline */
#include <ctrun.h>
#include <stdio.h>

enum {
    MICRO_BATCHES = 8,
    SAMPLES = 4, /* of a micro-batch */
    STEPS = 400
};

static struct ctrun_group *world;
static int rank, last;
/* The layer: out = weight * in + offset. */
static float weight = 1, offset, weight_grad, offset_grad;
static float in[MICRO_BATCHES][SAMPLES], out[MICRO_BATCHES][SAMPLES];

static int forward(int batch, struct ctrun_error *err)
{
    int rc = 0;

    for (int i = 0; rank == 0 && i < SAMPLES; i++)
        in[batch][i] = (float)(batch * SAMPLES + i) / (MICRO_BATCHES * SAMPLES);
    if (rank > 0)
        rc = ctrun_recv(world, in[batch], SAMPLES, CTRUN_F32, rank - 1, NULL, err);
    for (int i = 0; i < SAMPLES; i++)
        out[batch][i] = weight * in[batch][i] + offset;
    if (rc >= 0 && rank < last)
        rc = ctrun_send(world, out[batch], SAMPLES, CTRUN_F32, rank + 1, NULL, err);
    return rc;
}

/* The last rank learns y = 3 x - 1; it knows x, as everybody does. */
static int backward(int batch, struct ctrun_error *err)
{
    float grad[SAMPLES];
    int rc = 0;

    if (rank < last)
        rc = ctrun_recv(world, grad, SAMPLES, CTRUN_F32, rank + 1, NULL, err);
    for (int i = 0; i < SAMPLES; i++) {
        float x = (float)(batch * SAMPLES + i) / (MICRO_BATCHES * SAMPLES);

        if (rank == last)
            grad[i] = 2 * (out[batch][i] - (3 * x - 1)) / (MICRO_BATCHES * SAMPLES);
        weight_grad += grad[i] * in[batch][i];
        offset_grad += grad[i];
        grad[i] *= weight; /* of what came in */
    }
    if (rc >= 0 && rank > 0)
        rc = ctrun_send(world, grad, SAMPLES, CTRUN_F32, rank - 1, NULL, err);
    return rc;
}

/* First as many forwards as there are ranks after us, then one forward and one backward in turn:
 * so no rank stores more micro-batches than necessary. */
static int step(struct ctrun_error *err)
{
    const int ahead = last - rank < MICRO_BATCHES ? last - rank : MICRO_BATCHES;
    int rc = 0;

    weight_grad = offset_grad = 0;
    for (int batch = 0; batch < MICRO_BATCHES + ahead && rc >= 0; batch++) {
        if (batch < MICRO_BATCHES)
            rc = forward(batch, err);
        if (batch >= ahead && rc >= 0)
            rc = backward(batch - ahead, err);
    }
    weight -= 0.1f * weight_grad;
    offset -= 0.1f * offset_grad;
    return rc;
}

int main(void)
{
    struct ctrun_session *session;
    struct ctrun_error err;

    if (ctrun_open(&session, NULL, &err) < 0 ||
        ctrun_group_open(&world, session, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    rank = ctrun_rank(session);
    last = ctrun_world_size(session) - 1;
    for (uint64_t i = 0; i < STEPS && !ctrun_should_stop(session); i++) {
        if (step(&err) < 0)
            return ctrun_fail_worker(&err);
        ctrun_step(session, i);
    }
    if (rank == last) /* of the last step */
        printf("f(0) = %.1f, f(0.5) = %.1f\n", (double)out[0][0],
               (double)out[MICRO_BATCHES / 2][0]);
    ctrun_group_close(world);
    ctrun_close(session);
    return 0;
}
