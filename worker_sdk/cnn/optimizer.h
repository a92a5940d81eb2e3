/* SPDX-License-Identifier: Apache-2.0 */
/* Adadelta and StepLR, operation for operation as PyTorch does them. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CNN_ADADELTA_RHO 0.9
#define CNN_ADADELTA_EPS 1e-6

/* For each of n elements, in place:
 *
 *     square_avg = rho * square_avg + (1 - rho) * grad^2
 *     delta      = sqrt(acc_delta + eps) / sqrt(square_avg + eps) * grad
 *     acc_delta  = rho * acc_delta + (1 - rho) * delta^2
 *     value      = value - lr * delta
 *
 * Compiled without contraction into fused operations: every processor computes the same bits, so
 * that ranks on different machines keep equal parameters without exchanging them. */
struct cnn_adadelta {
    float *value;
    const float *grad;
    float *square_avg;
    float *acc_delta;
};
void cnn_adadelta_step(const struct cnn_adadelta *at, size_t n, float lr);

/* The learning rate in `epoch` (from 0): base * gamma^epoch, multiplied up as StepLR does. */
double cnn_step_lr(double base, double gamma, uint64_t epoch);
