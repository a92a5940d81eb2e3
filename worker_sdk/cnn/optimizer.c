/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/cnn/optimizer.h"

#include <math.h>

void cnn_adadelta_step(const struct cnn_adadelta *at, size_t n, float lr)
{
    float *restrict value = at->value;
    const float *restrict grad = at->grad;
    float *restrict square_avg = at->square_avg;
    float *restrict acc_delta = at->acc_delta;
    const float rho = (float)CNN_ADADELTA_RHO;
    const float rest = (float)(1 -
                               CNN_ADADELTA_RHO); /* rounded once, as torch's scalars */
    const float eps = (float)CNN_ADADELTA_EPS;

    for (size_t i = 0; i < n; i++) {
        const float v = rho * square_avg[i] + rest * grad[i] * grad[i];
        const float delta = sqrtf(acc_delta[i] + eps) / sqrtf(v + eps) * grad[i];

        square_avg[i] = v;
        acc_delta[i] = rho * acc_delta[i] + rest * delta * delta;
        value[i] -= lr * delta;
    }
}

double cnn_step_lr(double base, double gamma, uint64_t epoch)
{
    for (uint64_t e = 0; e < epoch; e++)
        base *= gamma;
    return base;
}
