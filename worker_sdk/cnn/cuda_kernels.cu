/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/cnn/cuda_kernels.cuh"

#include "worker_sdk/cnn/philox.h"

__global__ void gather(const uint8_t *images, const uint8_t *all_labels,
                       const struct stage *stage, float *x, uint8_t *labels)
{
    const size_t b = blockIdx.x, from = stage->indices[b];

    for (int p = threadIdx.x; p < CNN_PIXELS; p += blockDim.x)
        x[b * CNN_PIXELS + p] =
            ((float)images[from * CNN_PIXELS + p] / 255.0f - CNN_MEAN) / CNN_STD;
    if (threadIdx.x == 0)
        labels[b] = all_labels[from];
}

/* fmaxf() would turn NaN into 0. */
__device__ static float relu(float x)
{
    return x <= 0 ? 0 : x;
}

__global__ void bias_relu(float *a, const float *bias, size_t n, size_t channels,
                          size_t area)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        a[i] = relu(a[i] + bias[i / area % channels]);
}

__global__ void relu_backward(const float *a, float *da, size_t n)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n && !(a[i] > 0))
        da[i] = 0;
}

/* Whether dropout 1 keeps channel c of window t of the sample: random.h. */
static __device__ bool keeps1(uint64_t seed, uint32_t epoch, uint32_t sample,
                              uint32_t t, uint32_t c)
{
    uint32_t r[4];

    cnn_philox(t, sample, epoch, CNN_DRAW_DROPOUT1, seed, r);
    return (c < 32 ? (r[0] | r[2]) >> c : (r[1] | r[3]) >> (c - 32)) & 1;
}

__global__ void pool_forward(const float *a2, const float *bias,
                             const struct stage *stage, uint64_t seed, bool train,
                             float *flat, uint8_t *from)
{
    const uint32_t t = blockIdx.x, c = threadIdx.x;
    const size_t b = blockIdx.y, at = (b * CNN_WINDOWS + t) * CNN_C2 + c;
    const float *in = a2 + (b * CNN_C2 + c) * CNN_AREA2 +
                      t / CNN_POOLED * 2 * CNN_SIDE2 + t % CNN_POOLED * 2;
    const float four[4] = {in[0], in[1], in[CNN_SIDE2], in[CNN_SIDE2 + 1]};
    float value;
    uint8_t best = 0;

    for (uint8_t k = 1; k < 4; k++)
        best = four[k] > four[best] || isnan(four[k]) ? k : best;
    value = relu(four[best] + bias[c]);
    if (train)
        value = keeps1(seed, stage->epoch, stage->indices[b], t, c) ? value * CNN_SCALE1
                                                                    : 0.0f;
    flat[at] = value;
    from[at] = best;
}

__global__ void pool_backward(const float *flat, const float *dflat,
                              const uint8_t *from, float *da2)
{
    const uint32_t t = blockIdx.x, c = threadIdx.x;
    const size_t b = blockIdx.y, at = (b * CNN_WINDOWS + t) * CNN_C2 + c;
    float *out = da2 + (b * CNN_C2 + c) * CNN_AREA2 + t / CNN_POOLED * 2 * CNN_SIDE2 +
                 t % CNN_POOLED * 2;
    const float g = flat[at] > 0 ? CNN_SCALE1 * dflat[at] : 0.0f;

    out[0] = from[at] == 0 ? g : 0.0f;
    out[1] = from[at] == 1 ? g : 0.0f;
    out[CNN_SIDE2] = from[at] == 2 ? g : 0.0f;
    out[CNN_SIDE2 + 1] = from[at] == 3 ? g : 0.0f;
}

__global__ void head_step(struct head head)
{
    __shared__ float h[CNN_HIDDEN], logits[CNN_CLASSES], dlogits[CNN_CLASSES];
    const size_t b = blockIdx.x;
    const uint32_t i = threadIdx.x, label = head.labels[b];
    float value = relu(head.hidden[b * CNN_HIDDEN + i] + head.fc1_b[i]);
    float sum = 0;

    if (head.train) {
        uint32_t r[4];

        cnn_philox(0, head.stage->indices[b], head.stage->epoch, CNN_DRAW_DROPOUT2,
                   head.seed, r);
        value = r[i / 32] >> i % 32 & 1 ? value * CNN_SCALE2 : 0.0f;
    }
    h[i] = value;
    head.hidden[b * CNN_HIDDEN + i] = value;
    __syncthreads();
    if (i < CNN_CLASSES) {
        sum = head.fc2_b[i];
        for (int k = 0; k < CNN_HIDDEN; k++)
            sum += h[k] * head.fc2_w[k * CNN_CLASSES + i];
        logits[i] = sum;
    }
    __syncthreads();
    if (i < CNN_CLASSES) {
        float top = logits[0], total = 0, mine;
        uint32_t best = 0;

        for (uint32_t c = 1; c < CNN_CLASSES; c++)
            best = logits[c] > logits[best] ? c : best;
        top = logits[best];
        for (int c = 0; c < CNN_CLASSES; c++)
            total += expf(logits[c] - top);
        mine = logits[i] - top - logf(total);
        head.log_probs[b * CNN_CLASSES + i] = mine;
        dlogits[i] = head.stage->scale * (expf(mine) - (i == label ? 1.0f : 0.0f));
        head.dlogits[b * CNN_CLASSES + i] = dlogits[i];
        if (i == label) {
            atomicAdd(&head.sums->loss, -(double)mine);
            atomicAdd(&head.sums->correct, best == label ? 1ull : 0ull);
        }
    }
    __syncthreads();
    sum = 0;
    for (int c = 0; c < CNN_CLASSES; c++)
        sum += dlogits[c] * head.fc2_w[i * CNN_CLASSES + c];
    head.dhidden[b * CNN_HIDDEN + i] = h[i] > 0 ? CNN_SCALE2 * sum : 0.0f;
}

__global__ void fc2_backward(const float *hidden, const float *dlogits, size_t n,
                             float *dw)
{
    const size_t i = blockIdx.x, c = threadIdx.x;
    float sum = 0;

    for (size_t b = 0; b < n; b++)
        sum += hidden[b * CNN_HIDDEN + i] * dlogits[b * CNN_CLASSES + c];
    dw[i * CNN_CLASSES + c] = sum;
}

__global__ void column_sums(const float *x, size_t n, float *out)
{
    const size_t c = threadIdx.x, columns = blockDim.x;
    float sum = 0;

    for (size_t b = 0; b < n; b++)
        sum += x[b * columns + c];
    out[c] = sum;
}

__global__ void adadelta(float *value, const float *grad, float *square_avg,
                         float *acc_delta, size_t n, const struct stage *stage)
{
    const float rho = (float)CNN_ADADELTA_RHO, rest = (float)(1 - CNN_ADADELTA_RHO);
    const float eps = (float)CNN_ADADELTA_EPS, lr = stage->lr;
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    float g, v, u, delta;

    if (i >= n)
        return;
    g = grad[i];
    u = acc_delta[i];
    v = __fadd_rn(__fmul_rn(rho, square_avg[i]), __fmul_rn(__fmul_rn(rest, g), g));
    delta = __fmul_rn(
        __fdiv_rn(__fsqrt_rn(__fadd_rn(u, eps)), __fsqrt_rn(__fadd_rn(v, eps))), g);
    square_avg[i] = v;
    acc_delta[i] = __fadd_rn(__fmul_rn(rho, u),
                             __fmul_rn(__fmul_rn(rest, delta), delta));
    value[i] = __fsub_rn(value[i], __fmul_rn(lr, delta));
}
