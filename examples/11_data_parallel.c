/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism in one process: replicas of a model on several threads, each with a part of the batch. It needs no
 * launcher; with a process for each, 05_ddp.c is the faster way.
 *
 *     cc 11_data_parallel.c -o data_parallel $(pkg-config --cflags --libs ctrun)
 *     ./data_parallel */
#include <ctrun.h>
#include <stdio.h>

enum {
    DEVICES = 4,
    SAMPLES = 32,
    STEPS = 400
};

static struct ctrun_dp *dp;
static float weight, offset, weight_grad, offset_grad;

/* y = weight * x + offset learns y = 3 x - 1 from the samples of this device. */
static int forward_and_backward(void *context, int device, struct ctrun_error *err)
{
    const float *x = context;
    const float *w = ctrun_dp_value(dp, device, 0), *b = ctrun_dp_value(dp, device, 1);
    float *w_grad = ctrun_dp_grad(dp, device, 0),
          *b_grad = ctrun_dp_grad(dp, device, 1);
    size_t first, count;

    (void)err;
    ctrun_dp_scatter(dp, SAMPLES, device, &first, &count);
    for (size_t i = first; i < first + count; i++) {
        float error = *w * x[i] + *b - (3 * x[i] - 1);

        *w_grad += 2 * error * x[i] / SAMPLES;
        *b_grad += 2 * error / SAMPLES;
    }
    return 0;
}

int main(void)
{
    struct ctrun_param params[2] = {CTRUN_PARAM_INIT, CTRUN_PARAM_INIT};
    struct ctrun_error err;
    float x[SAMPLES];
    int replicas;

    for (int i = 0; i < SAMPLES; i++)
        x[i] = (float)i / SAMPLES;
    params[0].name = "weight";
    params[0].data = &weight;
    params[0].grad = &weight_grad;
    params[1].name = "offset";
    params[1].data = &offset;
    params[1].grad = &offset_grad;
    if (ctrun_dp_create(&dp, params, 2, DEVICES, &err) < 0)
        return ctrun_fail_worker(&err);
    replicas = ctrun_dp_scatter(dp, SAMPLES, 0, NULL, NULL);
    for (int step = 0; step < STEPS; step++) {
        if (ctrun_dp_replicate(dp, replicas, &err) < 0 ||
            ctrun_dp_apply(dp, replicas, forward_and_backward, x, &err) < 0 ||
            ctrun_dp_reduce(dp, replicas, &err) < 0)
            return ctrun_fail_worker(&err);
        weight -= 0.5f * weight_grad;
        offset -= 0.5f * offset_grad;
        weight_grad = offset_grad = 0;
    }
    printf("y = %.1f x - %.1f, by %d replicas\n", (double)weight, (double)-offset,
           replicas);
    ctrun_dp_destroy(dp);
    return 0;
}
