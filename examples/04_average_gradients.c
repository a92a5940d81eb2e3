/* SPDX-License-Identifier: Apache-2.0 */
/* Data parallelism by hand: each rank has its own part of the samples. The gradients are averaged,
 * so that all ranks make the same step and keep the same parameters. The model is a line, y =
 * slope * x + offset; 05_ddp.c does the same with the library's reducer.
 *
 *     cc 04_average_gradients.c -o average_gradients $(pkg-config --cflags --libs ctrun) -lm
 *     ctrun --standalone --nproc-per-node=2 ./average_gradients */
#include <ctrun.h>
#include <math.h>
#include <stdio.h>

enum {
    SAMPLES = 64,
    STEPS = 200
};

/* The mean gradient of (prediction - y)^2 over this rank's samples of y = 3 x - 1. */
static void backward(const float *line, int rank, int size, float *gradient)
{
    int mine = 0;

    gradient[0] = gradient[1] = 0;
    for (int i = rank; i < SAMPLES; i += size, mine++) {
        float x = (float)i / SAMPLES;
        float error = line[0] * x + line[1] - (3 * x - 1);

        gradient[0] += 2 * error * x;
        gradient[1] += 2 * error;
    }
    gradient[0] /= (float)mine;
    gradient[1] /= (float)mine;
}

int main(void)
{
    float line[2] = {0, 0}, gradient[2]; /* slope, offset */
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_error err;

    if (ctrun_open(&session, NULL, &err) < 0 ||
        ctrun_group_open(&world, session, NULL, &err) < 0)
        return ctrun_fail_worker(&err);
    for (uint64_t step = 0; step < STEPS && !ctrun_should_stop(session); step++) {
        backward(line, ctrun_rank(session), ctrun_world_size(session), gradient);
        if (ctrun_all_reduce(world, gradient, gradient, 2, CTRUN_F32, CTRUN_AVG, NULL,
                             &err) < 0)
            return ctrun_fail_worker(&err);
        line[0] -= 0.5f * gradient[0];
        line[1] -= 0.5f * gradient[1];
        ctrun_step(session, step);
    }
    if (ctrun_rank(session) == 0)
        printf("y = %.2f x + %.2f\n", (double)line[0], (double)line[1]);
    ctrun_group_close(world);
    ctrun_close(session);
    return fabsf(line[0] - 3) < 0.1f && fabsf(line[1] + 1) < 0.1f ? 0 : 1;
}
