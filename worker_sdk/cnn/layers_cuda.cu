/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA back end: convolutions by cuDNN, fc1 by cuBLAS, everything between by kernels of our
 * own; data set, parameters and optimizer state live on the GPU.
 *
 * A step is one captured graph per batch size: gather, forward, backward and, when no other rank
 * has to see the gradients, the update. The host only stages indices, epoch, scale and learning
 * rate, through a ring of pinned slots, and never waits: settle() does, when somebody wants to
 * know the loss. With exchange the graph ends after backward, gradients go to the host in the
 * order in which they are reported ready, and update() brings the averages back.
 *
 * Convolutions may use TF32, like PyTorch's; NVIDIA_TF32_OVERRIDE=0 turns that off. The first
 * failure of any call sticks in self->failed and is reported by the entry point it happened in. */
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/backend.h"
#include "worker_sdk/cnn/optimizer.h"
#include "worker_sdk/cnn/random.h"
}

enum {
    SLOTS = 8,    /* steps that the host may be ahead */
    DATASETS = 2, /* training and test */
    GRAPHS_MAX = 8,
    THREADS = 256,
    WORKSPACE_BYTES = 64 << 20,
};

/* What the host tells a step; indices follow. */
struct stage {
    uint32_t epoch;
    float scale;
    float lr;
    uint32_t unused;
    uint32_t indices[];
};

struct device_sums {
    double loss;
    unsigned long long correct;
};

struct device_data {
    const struct ctrun_dataset *key; /* the host's, borrowed */
    uint8_t *images;
    uint8_t *labels;
};

enum graph_kind {
    GRAPH_TEST,
    GRAPH_GRADIENTS,
    GRAPH_STEP
};

struct graph {
    cudaGraphExec_t exec;
    enum graph_kind kind;
    size_t n;
    const struct ctrun_dataset *data;
};

struct conv {
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t op;
    cudnnConvolutionFwdAlgo_t forward;
    cudnnConvolutionBwdFilterAlgo_t backward_w;
    cudnnConvolutionBwdDataAlgo_t backward_x;
};

struct cuda {
    struct cnn_engine engine; /* first: the table casts */
    bool exchange;
    cudaStream_t stream;
    cudnnHandle_t dnn;
    cublasHandle_t blas;
    struct ctrun_error failed; /* code 0: nothing yet */

    size_t floats; /* of one set of tensors, padding included */
    float *params, *grads, *square_avg, *acc_delta;
    size_t offset[CNN_PARAMS];

    size_t capacity; /* samples the arrays below can hold */
    float *x, *a1, *a2, *da1, *da2, *flat, *dflat, *hidden, *dhidden, *log_probs,
        *dlogits;
    uint8_t *from, *labels;
    struct stage *stage;        /* device */
    struct stage *slots[SLOTS]; /* pinned */
    cudaEvent_t slot_free[SLOTS];
    unsigned next_slot;
    struct device_sums *sums; /* device */
    void *conv_workspace, *blas_workspace;

    struct device_data data[DATASETS];
    struct graph graphs[GRAPHS_MAX];
    int graph_count;
    struct cnn_batch batch; /* of the last forward */
    uint64_t counted;       /* samples whose sums are still on the device */
};

/* ---- Errors ------------------------------------------------------------------------------ */

static bool is_fine(const struct cuda *self)
{
    return self->failed.code == 0;
}

static void cuda_ok(struct cuda *self, cudaError_t rc, const char *what)
{
    if (rc != cudaSuccess && is_fine(self))
        ct_fail(&self->failed,
                rc == cudaErrorMemoryAllocation ? -ENOMEM : CTRUN_E_UNSUPPORTED,
                "CUDA: %s: %s", what, cudaGetErrorString(rc));
}

static void dnn_ok(struct cuda *self, cudnnStatus_t rc, const char *what)
{
    if (rc != CUDNN_STATUS_SUCCESS && is_fine(self))
        ct_fail(&self->failed, CTRUN_E_UNSUPPORTED, "cuDNN: %s: %s", what,
                cudnnGetErrorString(rc));
}

static void blas_ok(struct cuda *self, cublasStatus_t rc, const char *what)
{
    if (rc != CUBLAS_STATUS_SUCCESS && is_fine(self))
        ct_fail(&self->failed, CTRUN_E_UNSUPPORTED, "cuBLAS: %s: %s", what,
                cublasGetStatusString(rc));
}

/* What an entry point returns. */
static int finish(struct cuda *self, struct ctrun_error *err)
{
    if (is_fine(self))
        return 0;
    if (err)
        *err = self->failed;
    return self->failed.code;
}

/* ---- Kernels ----------------------------------------------------------------------------- */

static __device__ void philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3,
                              uint64_t key, uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;

        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* x is (B, 784); one block an image. */
static __global__ void gather(const uint8_t *images, const uint8_t *all_labels,
                              const struct stage *stage, float *x, uint8_t *labels)
{
    const size_t b = blockIdx.x, from = stage->indices[b];

    for (int p = threadIdx.x; p < CNN_PIXELS; p += blockDim.x)
        x[b * CNN_PIXELS + p] =
            ((float)images[from * CNN_PIXELS + p] / 255.0f - CNN_MEAN) / CNN_STD;
    if (threadIdx.x == 0)
        labels[b] = all_labels[from];
}

/* a is (B, C, area): a = max(a + bias[c], 0) */
static __global__ void bias_relu(float *a, const float *bias, size_t n, size_t channels,
                                 size_t area)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

    if (i < n)
        a[i] = fmaxf(a[i] + bias[i / area % channels], 0.0f);
}

/* The gradient passes where a > 0. */
static __global__ void relu_backward(const float *a, float *da, size_t n)
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

    philox(t, sample, epoch, CNN_DRAW_DROPOUT1, seed, r);
    return (c < 32 ? (r[0] | r[2]) >> c : (r[1] | r[3]) >> (c - 32)) & 1;
}

/* a2 is (B, 64, 24, 24) without bias; flat is (B, 144, 64): bias, ReLU, pool, dropout. One block
 * of 64 threads, a channel each, per window (x) and image (y). */
static __global__ void pool_forward(const float *a2, const float *bias,
                                    const struct stage *stage, uint64_t seed,
                                    bool train, float *flat, uint8_t *from)
{
    const uint32_t t = blockIdx.x, c = threadIdx.x;
    const size_t b = blockIdx.y, at = (b * CNN_WINDOWS + t) * CNN_C2 + c;
    const float *in = a2 + (b * CNN_C2 + c) * CNN_AREA2 +
                      t / CNN_POOLED * 2 * CNN_SIDE2 + t % CNN_POOLED * 2;
    const float four[4] = {in[0], in[1], in[CNN_SIDE2], in[CNN_SIDE2 + 1]};
    float value;
    uint8_t best = 0;

    for (uint8_t k = 1; k < 4; k++)
        best = four[k] > four[best] ? k : best;
    value = fmaxf(four[best] + bias[c], 0.0f);
    if (train)
        value = keeps1(seed, stage->epoch, stage->indices[b], t, c) ? value * CNN_SCALE1
                                                                    : 0.0f;
    flat[at] = value;
    from[at] = best;
}

/* da2 (B, 64, 24, 24) from dflat (B, 144, 64); where flat is 0, ReLU or dropout stopped it. */
static __global__ void pool_backward(const float *flat, const float *dflat,
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

struct head {
    const float *fc1_b, *fc2_w, *fc2_b;
    float *hidden, *dhidden, *log_probs, *dlogits;
    const uint8_t *labels;
    const struct stage *stage;
    uint64_t seed;
    bool train;
    struct device_sums *sums;
};

/* What head.c does, one block of 128 threads per sample: bias, ReLU, dropout 2, fc2,
 * log-softmax, loss; in training also the gradients at the logits and at fc1's output. */
static __global__ void head_step(struct head head)
{
    __shared__ float h[CNN_HIDDEN], logits[CNN_CLASSES], dlogits[CNN_CLASSES];
    const size_t b = blockIdx.x;
    const uint32_t i = threadIdx.x, label = head.labels[b];
    float value = fmaxf(head.hidden[b * CNN_HIDDEN + i] + head.fc1_b[i], 0.0f);
    float sum = 0;

    if (head.train) {
        uint32_t r[4];

        philox(0, head.stage->indices[b], head.stage->epoch, CNN_DRAW_DROPOUT2,
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

/* dw (128, 10) = hidden^T dlogits; one block a unit, one thread a class. */
static __global__ void fc2_backward(const float *hidden, const float *dlogits, size_t n,
                                    float *dw)
{
    const size_t i = blockIdx.x, c = threadIdx.x;
    float sum = 0;

    for (size_t b = 0; b < n; b++)
        sum += hidden[b * CNN_HIDDEN + i] * dlogits[b * CNN_CLASSES + c];
    dw[i * CNN_CLASSES + c] = sum;
}

/* out[c] = sum over rows of x (n, columns); one thread a column. */
static __global__ void column_sums(const float *x, size_t n, float *out)
{
    const size_t c = threadIdx.x, columns = blockDim.x;
    float sum = 0;

    for (size_t b = 0; b < n; b++)
        sum += x[b * columns + c];
    out[c] = sum;
}

/* optimizer.c, rounding for rounding: no operation may be fused. */
static __global__ void adadelta(float *value, const float *grad, float *square_avg,
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

static int cuda_settle(struct cnn_engine *engine, struct ctrun_error *err);

static unsigned blocks(size_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

/* ---- Memory ------------------------------------------------------------------------------ */

static void *device_alloc(struct cuda *self, size_t bytes)
{
    void *memory = NULL;

    if (is_fine(self))
        cuda_ok(self, cudaMalloc(&memory, bytes), "allocate");
    if (memory)
        cuda_ok(self, cudaMemsetAsync(memory, 0, bytes, self->stream), "clear");
    return memory;
}

static float *device_floats(struct cuda *self, size_t n)
{
    return (float *)device_alloc(self, n * sizeof(float));
}

static void forget_graphs(struct cuda *self)
{
    for (int i = 0; i < self->graph_count; i++)
        cudaGraphExecDestroy(self->graphs[i].exec);
    self->graph_count = 0;
}

static void release_batch(struct cuda *self)
{
    float *const arrays[] = {self->x,       self->a1,        self->a2,     self->da1,
                             self->da2,     self->flat,      self->dflat,  self->hidden,
                             self->dhidden, self->log_probs, self->dlogits};

    forget_graphs(self); /* they hold the addresses */
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        cudaFree(arrays[i]);
    cudaFree(self->from);
    cudaFree(self->labels);
    cudaFree(self->stage);
    for (int i = 0; i < SLOTS; i++) {
        cudaFreeHost(self->slots[i]);
        self->slots[i] = NULL;
    }
    self->x = self->a1 = self->a2 = self->da1 = self->da2 = self->flat = self->dflat =
        NULL;
    self->hidden = self->dhidden = self->log_probs = self->dlogits = NULL;
    self->from = self->labels = NULL;
    self->stage = NULL;
    self->capacity = 0;
}

static void reserve_batch(struct cuda *self, size_t n)
{
    const size_t stage_bytes = sizeof(struct stage) + n * sizeof(uint32_t);

    if (n <= self->capacity || !is_fine(self))
        return;
    cuda_ok(self, cudaStreamSynchronize(self->stream), "wait");
    release_batch(self);
    self->x = device_floats(self, n * CNN_PIXELS);
    self->a1 = device_floats(self, n * CNN_C1 * CNN_AREA1);
    self->da1 = device_floats(self, n * CNN_C1 * CNN_AREA1);
    self->a2 = device_floats(self, n * CNN_C2 * CNN_AREA2);
    self->da2 = device_floats(self, n * CNN_C2 * CNN_AREA2);
    self->flat = device_floats(self, n * CNN_FLAT);
    self->dflat = device_floats(self, n * CNN_FLAT);
    self->hidden = device_floats(self, n * CNN_HIDDEN);
    self->dhidden = device_floats(self, n * CNN_HIDDEN);
    self->log_probs = device_floats(self, n * CNN_CLASSES);
    self->dlogits = device_floats(self, n * CNN_CLASSES);
    self->from = (uint8_t *)device_alloc(self, n * CNN_FLAT);
    self->labels = (uint8_t *)device_alloc(self, n);
    self->stage = (struct stage *)device_alloc(self, stage_bytes);
    for (int i = 0; i < SLOTS && is_fine(self); i++)
        cuda_ok(self, cudaMallocHost((void **)&self->slots[i], stage_bytes),
                "pin memory");
    if (is_fine(self))
        self->capacity = n;
}

/* The data set's copy on the device, brought there when it is first seen. */
static const struct device_data *find_data(struct cuda *self,
                                           const struct ctrun_dataset *key)
{
    struct device_data *data = self->data;

    while (data < self->data + DATASETS - 1 && data->key && data->key != key)
        data++;
    if (data->key == key)
        return data;
    cuda_ok(self, cudaStreamSynchronize(self->stream), "wait");
    forget_graphs(self);
    cudaFree(data->images);
    cudaFree(data->labels);
    data->images = (uint8_t *)device_alloc(self, key->count * CNN_PIXELS);
    data->labels = (uint8_t *)device_alloc(self, key->count);
    data->key = key;
    if (!is_fine(self))
        return data;
    cuda_ok(self,
            cudaMemcpyAsync(data->images, key->images, key->count * CNN_PIXELS,
                            cudaMemcpyHostToDevice, self->stream),
            "copy images");
    cuda_ok(self,
            cudaMemcpyAsync(data->labels, key->labels, key->count,
                            cudaMemcpyHostToDevice, self->stream),
            "copy labels");
    return data;
}

/* ---- Convolutions ------------------------------------------------------------------------ */

static void tensor_of(struct cuda *self, cudnnTensorDescriptor_t *out, size_t n,
                      int channels, int side)
{
    dnn_ok(self, cudnnCreateTensorDescriptor(out), "describe a tensor");
    if (is_fine(self))
        dnn_ok(self,
               cudnnSetTensor4dDescriptor(*out, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT,
                                          (int)n, channels, side, side),
               "describe a tensor");
}

static void close_conv(struct conv *conv)
{
    if (conv->x)
        cudnnDestroyTensorDescriptor(conv->x);
    if (conv->y)
        cudnnDestroyTensorDescriptor(conv->y);
    if (conv->bias)
        cudnnDestroyTensorDescriptor(conv->bias);
    if (conv->w)
        cudnnDestroyFilterDescriptor(conv->w);
    if (conv->op)
        cudnnDestroyConvolutionDescriptor(conv->op);
}

/* The fastest deterministic algorithm, by cuDNN's own estimate, whose workspace we have. */
template <typename Result>
static int choose(struct cuda *self, const Result *found, int count, const char *what)
{
    for (int i = 0; i < count; i++)
        if (found[i].status == CUDNN_STATUS_SUCCESS &&
            found[i].determinism == CUDNN_DETERMINISTIC &&
            found[i].memory <= (size_t)WORKSPACE_BYTES)
            return i;
    dnn_ok(self, CUDNN_STATUS_NOT_SUPPORTED, what);
    return 0;
}

static void choose_algorithms(struct cuda *self, struct conv *conv)
{
    cudnnConvolutionFwdAlgoPerf_t forward[8];
    cudnnConvolutionBwdFilterAlgoPerf_t filter[8];
    cudnnConvolutionBwdDataAlgoPerf_t data[8];
    int n = 0;

    if (!is_fine(self))
        return;
    dnn_ok(self,
           cudnnGetConvolutionForwardAlgorithm_v7(self->dnn, conv->x, conv->w, conv->op,
                                                  conv->y, 8, &n, forward),
           "forward");
    conv->forward = forward[choose(self, forward, n, "forward")].algo;
    dnn_ok(self,
           cudnnGetConvolutionBackwardFilterAlgorithm_v7(
               self->dnn, conv->x, conv->y, conv->op, conv->w, 8, &n, filter),
           "weight gradient");
    conv->backward_w = filter[choose(self, filter, n, "weight gradient")].algo;
    dnn_ok(self,
           cudnnGetConvolutionBackwardDataAlgorithm_v7(self->dnn, conv->w, conv->y,
                                                       conv->op, conv->x, 8, &n, data),
           "input gradient");
    conv->backward_x = data[choose(self, data, n, "input gradient")].algo;
}

static void open_conv(struct cuda *self, struct conv *conv, size_t n, int in, int out,
                      int side)
{
    memset(conv, 0, sizeof *conv);
    tensor_of(self, &conv->x, n, in, side);
    tensor_of(self, &conv->y, n, out, side - 2);
    tensor_of(self, &conv->bias, 1, out, 1);
    dnn_ok(self, cudnnCreateFilterDescriptor(&conv->w), "describe weights");
    dnn_ok(self, cudnnCreateConvolutionDescriptor(&conv->op), "describe a convolution");
    if (!is_fine(self))
        return;
    dnn_ok(self,
           cudnnSetFilter4dDescriptor(conv->w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, out,
                                      in, 3, 3),
           "describe weights");
    dnn_ok(self,
           cudnnSetConvolution2dDescriptor(conv->op, 0, 0, 1, 1, 1, 1,
                                           CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
           "describe a convolution");
    choose_algorithms(self, conv);
}

static void conv_forward(struct cuda *self, const struct conv *conv, const float *x,
                         const float *w, float *y)
{
    const float one = 1, zero = 0;

    if (is_fine(self))
        dnn_ok(self,
               cudnnConvolutionForward(self->dnn, &one, conv->x, x, conv->w, w,
                                       conv->op, conv->forward, self->conv_workspace,
                                       WORKSPACE_BYTES, &zero, conv->y, y),
               "forward");
}

static void conv_backward_w(struct cuda *self, const struct conv *conv, const float *x,
                            const float *dy, float *dw, float *db)
{
    const float one = 1, zero = 0;

    if (!is_fine(self))
        return;
    dnn_ok(self,
           cudnnConvolutionBackwardFilter(
               self->dnn, &one, conv->x, x, conv->y, dy, conv->op, conv->backward_w,
               self->conv_workspace, WORKSPACE_BYTES, &zero, conv->w, dw),
           "weight gradient");
    dnn_ok(self,
           cudnnConvolutionBackwardBias(self->dnn, &one, conv->y, dy, &zero, conv->bias,
                                        db),
           "bias gradient");
}

static void conv_backward_x(struct cuda *self, const struct conv *conv, const float *w,
                            const float *dy, float *dx)
{
    const float one = 1, zero = 0;

    if (is_fine(self))
        dnn_ok(self,
               cudnnConvolutionBackwardData(
                   self->dnn, &one, conv->w, w, conv->y, dy, conv->op, conv->backward_x,
                   self->conv_workspace, WORKSPACE_BYTES, &zero, conv->x, dx),
               "input gradient");
}

/* ---- One step on the stream -------------------------------------------------------------- */

/* c (m, n) = op(a) op(b), column-major as cuBLAS wants it: our row-major arrays are its
 * transposed ones, so (B, 9216) is 9216 x B here. */
static void gemm(struct cuda *self, cublasOperation_t ta, cublasOperation_t tb, int m,
                 int n, int k, const float *a, const float *b, float *c)
{
    const float one = 1, zero = 0;

    if (is_fine(self))
        blas_ok(self,
                cublasSgemm(self->blas, ta, tb, m, n, k, &one, a,
                            ta == CUBLAS_OP_N ? m : k, b, tb == CUBLAS_OP_N ? k : n,
                            &zero, c, m),
                "multiply");
}

static float *param(const struct cuda *self, enum cnn_param p)
{
    return self->params + self->offset[p];
}

static float *grad(const struct cuda *self, enum cnn_param p)
{
    return self->grads + self->offset[p];
}

static void run_forward(struct cuda *self, const struct conv *conv1,
                        const struct conv *conv2, const struct device_data *data,
                        size_t n, bool train)
{
    const size_t values = n * CNN_C1 * CNN_AREA1;
    struct head head;

    gather<<<(unsigned)n, THREADS, 0, self->stream>>>(
        data->images, data->labels, self->stage, self->x, self->labels);
    conv_forward(self, conv1, self->x, param(self, CNN_CONV1_W), self->a1);
    bias_relu<<<blocks(values), THREADS, 0, self->stream>>>(
        self->a1, param(self, CNN_CONV1_B), values, CNN_C1, CNN_AREA1);
    conv_forward(self, conv2, self->a1, param(self, CNN_CONV2_W), self->a2);
    pool_forward<<<dim3(CNN_WINDOWS, (unsigned)n), CNN_C2, 0, self->stream>>>(
        self->a2, param(self, CNN_CONV2_B), self->stage, self->engine.seed, train,
        self->flat, self->from);
    gemm(self, CUBLAS_OP_N, CUBLAS_OP_N, CNN_HIDDEN, (int)n, CNN_FLAT,
         param(self, CNN_FC1_W), self->flat, self->hidden);
    head.fc1_b = param(self, CNN_FC1_B);
    head.fc2_w = param(self, CNN_FC2_W);
    head.fc2_b = param(self, CNN_FC2_B);
    head.hidden = self->hidden;
    head.dhidden = self->dhidden;
    head.log_probs = self->log_probs;
    head.dlogits = self->dlogits;
    head.labels = self->labels;
    head.stage = self->stage;
    head.seed = self->engine.seed;
    head.train = train;
    head.sums = self->sums;
    head_step<<<(unsigned)n, CNN_HIDDEN, 0, self->stream>>>(head);
}

static void run_backward(struct cuda *self, const struct conv *conv1,
                         const struct conv *conv2, size_t n)
{
    const size_t values = n * CNN_C1 * CNN_AREA1;

    fc2_backward<<<CNN_HIDDEN, CNN_CLASSES, 0, self->stream>>>(
        self->hidden, self->dlogits, n, grad(self, CNN_FC2_W));
    column_sums<<<1, CNN_CLASSES, 0, self->stream>>>(self->dlogits, n,
                                                     grad(self, CNN_FC2_B));
    column_sums<<<1, CNN_HIDDEN, 0, self->stream>>>(self->dhidden, n,
                                                    grad(self, CNN_FC1_B));
    gemm(self, CUBLAS_OP_N, CUBLAS_OP_T, CNN_HIDDEN, CNN_FLAT, (int)n, self->dhidden,
         self->flat, grad(self, CNN_FC1_W));
    gemm(self, CUBLAS_OP_T, CUBLAS_OP_N, CNN_FLAT, (int)n, CNN_HIDDEN,
         param(self, CNN_FC1_W), self->dhidden, self->dflat);
    pool_backward<<<dim3(CNN_WINDOWS, (unsigned)n), CNN_C2, 0, self->stream>>>(
        self->flat, self->dflat, self->from, self->da2);
    conv_backward_w(self, conv2, self->a1, self->da2, grad(self, CNN_CONV2_W),
                    grad(self, CNN_CONV2_B));
    conv_backward_x(self, conv2, param(self, CNN_CONV2_W), self->da2, self->da1);
    relu_backward<<<blocks(values), THREADS, 0, self->stream>>>(self->a1, self->da1,
                                                                values);
    conv_backward_w(self, conv1, self->x, self->da1, grad(self, CNN_CONV1_W),
                    grad(self, CNN_CONV1_B));
}

static void run_update(struct cuda *self)
{
    adadelta<<<blocks(self->floats), THREADS, 0, self->stream>>>(
        self->params, self->grads, self->square_avg, self->acc_delta, self->floats,
        self->stage);
    cuda_ok(self, cudaGetLastError(), "launch");
}

/* Runs forward and backward once on sample 0 with weight 0: libraries load their kernels and
 * allocate what they need at the first call, which must not happen while a step is recorded.
 * The sums that wait on the device are fetched first, those of this run are thrown away. */
static void warm_up(struct cuda *self, const struct conv *conv1,
                    const struct conv *conv2, const struct device_data *data, size_t n)
{
    (void)cuda_settle(&self->engine, NULL); /* a failure sticks in self->failed */
    if (!is_fine(self))
        return;
    cuda_ok(self,
            cudaMemsetAsync(self->stage, 0, sizeof(struct stage) + n * sizeof(uint32_t),
                            self->stream),
            "clear");
    run_forward(self, conv1, conv2, data, n, true);
    run_backward(self, conv1, conv2, n);
    cuda_ok(self, cudaMemsetAsync(self->sums, 0, sizeof *self->sums, self->stream),
            "clear");
    cuda_ok(self, cudaGetLastError(), "launch");
    cuda_ok(self, cudaStreamSynchronize(self->stream), "wait");
}

/* Records a step of n samples; it runs when the graph is launched. */
static cudaGraphExec_t capture(struct cuda *self, enum graph_kind kind, size_t n,
                               const struct device_data *data)
{
    cudaGraphExec_t exec = NULL;
    cudaGraph_t graph = NULL;
    struct conv conv1, conv2;

    open_conv(self, &conv1, n, 1, CNN_C1, CNN_SIDE);
    open_conv(self, &conv2, n, CNN_C1, CNN_C2, CNN_SIDE1);
    if (is_fine(self))
        warm_up(self, &conv1, &conv2, data, n);
    if (is_fine(self)) {
        cuda_ok(self,
                cudaStreamBeginCapture(self->stream, cudaStreamCaptureModeThreadLocal),
                "record");
        run_forward(self, &conv1, &conv2, data, n, kind != GRAPH_TEST);
        if (kind != GRAPH_TEST)
            run_backward(self, &conv1, &conv2, n);
        if (kind == GRAPH_STEP)
            run_update(self);
        cuda_ok(self, cudaStreamEndCapture(self->stream, &graph), "record");
        cuda_ok(self, cudaGetLastError(), "record");
    }
    if (is_fine(self))
        cuda_ok(self, cudaGraphInstantiate(&exec, graph, 0), "prepare a step");
    if (graph)
        cudaGraphDestroy(graph);
    close_conv(&conv1);
    close_conv(&conv2);
    return exec;
}

static cudaGraphExec_t find_graph(struct cuda *self, enum graph_kind kind, size_t n,
                                  const struct device_data *data)
{
    struct graph *graph;

    for (int i = 0; i < self->graph_count; i++) {
        graph = &self->graphs[i];
        if (graph->kind == kind && graph->n == n && graph->data == data->key)
            return graph->exec;
    }
    if (self->graph_count == GRAPHS_MAX) {
        cuda_ok(self, cudaStreamSynchronize(self->stream), "wait");
        forget_graphs(self);
    }
    graph = &self->graphs[self->graph_count];
    graph->exec = capture(self, kind, n, data);
    graph->kind = kind;
    graph->n = n;
    graph->data = data->key;
    if (is_fine(self))
        self->graph_count++;
    return is_fine(self) ? graph->exec : NULL;
}

/* Copies what the host says into the next pinned slot and from there to the device; waits only
 * when the host is SLOTS steps ahead. */
static void stage_step(struct cuda *self, const struct cnn_batch *batch, float lr)
{
    const unsigned at = self->next_slot++ % SLOTS;
    struct stage *slot = self->slots[at];

    if (!is_fine(self))
        return;
    cuda_ok(self, cudaEventSynchronize(self->slot_free[at]), "wait");
    slot->epoch = batch->epoch;
    slot->scale = batch->scale;
    slot->lr = lr;
    for (size_t i = 0; i < batch->count; i++)
        slot->indices[i] = (uint32_t)batch->indices[i];
    cuda_ok(self,
            cudaMemcpyAsync(self->stage, slot,
                            sizeof *slot + batch->count * sizeof(uint32_t),
                            cudaMemcpyHostToDevice, self->stream),
            "stage a step");
    cuda_ok(self, cudaEventRecord(self->slot_free[at], self->stream), "stage a step");
}

static void launch(struct cuda *self, enum graph_kind kind, float lr)
{
    const struct cnn_batch *batch = &self->batch;
    const struct device_data *data;
    cudaGraphExec_t exec;

    reserve_batch(self, batch->count);
    data = find_data(self, batch->data);
    exec = is_fine(self) ? find_graph(self, kind, batch->count, data) : NULL;
    stage_step(self, batch, lr);
    if (exec && is_fine(self))
        cuda_ok(self, cudaGraphLaunch(exec, self->stream), "run a step");
    self->counted += batch->count;
}

static void copy_log_probs(struct cuda *self)
{
    if (!self->batch.log_probs || !is_fine(self))
        return;
    cuda_ok(self,
            cudaMemcpyAsync(self->batch.log_probs, self->log_probs,
                            self->batch.count * CNN_CLASSES * sizeof(float),
                            cudaMemcpyDeviceToHost, self->stream),
            "copy results");
    cuda_ok(self, cudaStreamSynchronize(self->stream), "wait");
}

/* ---- The table --------------------------------------------------------------------------- */

/* A training step needs the learning rate, or the ranks' agreement: it is launched later. */
static int cuda_forward(struct cnn_engine *engine, const struct cnn_batch *batch,
                        struct ctrun_error *err)
{
    struct cuda *self = (struct cuda *)engine;

    self->batch = *batch;
    if (batch->train || batch->count == 0)
        return finish(self, err);
    launch(self, GRAPH_TEST, 0);
    copy_log_probs(self);
    return finish(self, err);
}

static int cuda_backward(struct cnn_engine *engine, float *const grads[CNN_PARAMS],
                         cnn_ready_fn *on_ready, void *context, struct ctrun_error *err)
{
    static const enum cnn_param order[CNN_PARAMS] = {
        CNN_FC2_B,   CNN_FC2_W,   CNN_FC1_B,   CNN_FC1_W,
        CNN_CONV2_W, CNN_CONV2_B, CNN_CONV1_W, CNN_CONV1_B};
    struct cuda *self = (struct cuda *)engine;
    int rc = 0;

    if (self->exchange && self->batch.count > 0) {
        launch(self, GRAPH_GRADIENTS, 0);
        copy_log_probs(self);
    }
    for (int i = 0; i < CNN_PARAMS && rc >= 0; i++) {
        const enum cnn_param p = order[i];
        const size_t bytes = cnn_params[p].count * sizeof(float);

        if (self->exchange && self->batch.count == 0)
            memset(grads[p], 0, bytes);
        else if (self->exchange &&
                 is_fine(self)) /* to pageable memory: waits for the copy */
            cuda_ok(self,
                    cudaMemcpyAsync(grads[p], grad(self, p), bytes,
                                    cudaMemcpyDeviceToHost, self->stream),
                    "copy gradients");
        if (self->exchange && is_fine(self))
            cuda_ok(self, cudaStreamSynchronize(self->stream), "wait");
        rc = is_fine(self) ? on_ready(context, p, err) : finish(self, err);
    }
    return rc < 0 ? rc : 0;
}

static int cuda_update(struct cnn_engine *engine, float *const grads[CNN_PARAMS],
                       float lr, struct ctrun_error *err)
{
    struct cuda *self = (struct cuda *)engine;

    if (!self->exchange) {
        if (self->batch.count > 0)
            launch(self, GRAPH_STEP, lr);
        return finish(self, err);
    }
    reserve_batch(self, 1); /* the stage, for a rank that never had a sample */
    for (int p = 0; p < CNN_PARAMS && is_fine(self); p++)
        cuda_ok(self,
                cudaMemcpyAsync(grad(self, (enum cnn_param)p), grads[p],
                                cnn_params[p].count * sizeof(float),
                                cudaMemcpyHostToDevice, self->stream),
                "copy gradients");
    stage_step(self, &self->batch, lr);
    if (is_fine(self))
        run_update(self);
    /* grads are the reducer's again when we return. */
    cuda_ok(self, cudaStreamSynchronize(self->stream), "wait");
    return finish(self, err);
}

/* The model between host and device, parameter by parameter: the two pad differently. */
static int move_model(struct cuda *self, enum cudaMemcpyKind kind,
                      struct ctrun_error *err)
{
    struct cnn_model *model = self->engine.model;
    const struct cnn_tensors *const host[] = {&model->values, &model->square_avg,
                                              &model->acc_delta};
    float *const device[] = {self->params, self->square_avg, self->acc_delta};

    for (int s = 0; s < 3; s++) {
        for (int p = 0; p < CNN_PARAMS && is_fine(self); p++) {
            float *there = device[s] + self->offset[p], *here = host[s]->of[p];
            const bool up = kind == cudaMemcpyHostToDevice;

            cuda_ok(self,
                    cudaMemcpyAsync(up ? there : here, up ? here : there,
                                    cnn_params[p].count * sizeof(float), kind,
                                    self->stream),
                    "copy the model");
        }
    }
    cuda_ok(self, cudaStreamSynchronize(self->stream), "wait");
    return finish(self, err);
}

static int cuda_push(struct cnn_engine *engine, struct ctrun_error *err)
{
    return move_model((struct cuda *)engine, cudaMemcpyHostToDevice, err);
}

static int cuda_pull(struct cnn_engine *engine, struct ctrun_error *err)
{
    return move_model((struct cuda *)engine, cudaMemcpyDeviceToHost, err);
}

static int cuda_settle(struct cnn_engine *engine, struct ctrun_error *err)
{
    struct cuda *self = (struct cuda *)engine;
    struct device_sums sums = {0, 0};

    if (is_fine(self))
        cuda_ok(self,
                cudaMemcpyAsync(&sums, self->sums, sizeof sums, cudaMemcpyDeviceToHost,
                                self->stream),
                "copy sums");
    if (is_fine(self))
        cuda_ok(self, cudaMemsetAsync(self->sums, 0, sizeof sums, self->stream),
                "clear sums");
    cuda_ok(self, cudaStreamSynchronize(self->stream), "wait");
    engine->sums.loss += sums.loss;
    engine->sums.correct += sums.correct;
    engine->sums.count += self->counted;
    self->counted = 0;
    return finish(self, err);
}

static bool cuda_is_usable(char *why, size_t size)
{
    int count = 0;
    const cudaError_t rc = cudaGetDeviceCount(&count);

    if (rc != cudaSuccess || count == 0) {
        (void)ct_format(why, size, "no usable GPU: %s",
                        rc == cudaSuccess ? "none is there" : cudaGetErrorString(rc));
        return false;
    }
    return true;
}

static void cuda_close(struct cnn_engine *engine)
{
    struct cuda *self = (struct cuda *)engine;
    void *const device[] = {self->params,        self->grads, self->square_avg,
                            self->acc_delta,     self->sums,  self->conv_workspace,
                            self->blas_workspace};

    if (self->stream)
        cudaStreamSynchronize(self->stream);
    release_batch(self);
    for (int i = 0; i < DATASETS; i++) {
        cudaFree(self->data[i].images);
        cudaFree(self->data[i].labels);
    }
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        cudaFree(device[i]);
    for (int i = 0; i < SLOTS; i++)
        if (self->slot_free[i])
            cudaEventDestroy(self->slot_free[i]);
    if (self->dnn)
        cudnnDestroy(self->dnn);
    if (self->blas)
        cublasDestroy(self->blas);
    if (self->stream)
        cudaStreamDestroy(self->stream);
    cnn_engine_deinit(engine);
    free(self);
}

static void open_libraries(struct cuda *self, int device)
{
    int count = 1;

    cuda_ok(self, cudaGetDeviceCount(&count), "count GPUs");
    if (is_fine(self))
        cuda_ok(self, cudaSetDevice(device % count), "choose a GPU");
    if (is_fine(self))
        cuda_ok(self, cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking),
                "open a stream");
    for (int i = 0; i < SLOTS && is_fine(self); i++)
        cuda_ok(self,
                cudaEventCreateWithFlags(&self->slot_free[i], cudaEventDisableTiming),
                "open an event");
    if (is_fine(self))
        dnn_ok(self, cudnnCreate(&self->dnn), "open");
    if (is_fine(self))
        blas_ok(self, cublasCreate(&self->blas), "open");
    if (!is_fine(self))
        return;
    dnn_ok(self, cudnnSetStream(self->dnn, self->stream), "use our stream");
    blas_ok(self, cublasSetStream(self->blas, self->stream), "use our stream");
}

static void allocate_model(struct cuda *self)
{
    for (int p = 0; p < CNN_PARAMS; p++) {
        self->offset[p] = self->floats;
        self->floats += (cnn_params[p].count + 63) / 64 * 64; /* 256-byte aligned */
    }
    self->params = device_floats(self, self->floats);
    self->grads = device_floats(self, self->floats);
    self->square_avg = device_floats(self, self->floats);
    self->acc_delta = device_floats(self, self->floats);
    self->sums = (struct device_sums *)device_alloc(self, sizeof *self->sums);
    self->conv_workspace = device_alloc(self, WORKSPACE_BYTES);
    self->blas_workspace = device_alloc(self, WORKSPACE_BYTES);
    if (is_fine(self)) /* cuBLAS must not allocate while a step is recorded */
        blas_ok(self,
                cublasSetWorkspace(self->blas, self->blas_workspace, WORKSPACE_BYTES),
                "use our workspace");
}

static int cuda_open(struct cnn_engine **out, const struct cnn_engine_options *options,
                     struct ctrun_error *err);

static const struct cnn_backend cuda_backend = {
    .name = "cuda",
    .is_usable = cuda_is_usable,
    .open = cuda_open,
    .close = cuda_close,
    .forward = cuda_forward,
    .backward = cuda_backward,
    .update = cuda_update,
    .push = cuda_push,
    .pull = cuda_pull,
    .settle = cuda_settle,
};

static int cuda_open(struct cnn_engine **out, const struct cnn_engine_options *options,
                     struct ctrun_error *err)
{
    struct cuda *self = (struct cuda *)ct_zalloc(sizeof *self);
    struct cnn_engine_options alone = *options;
    int rc;

    if (!self)
        return ct_fail(err, -ENOMEM, "open CUDA: out of memory");
    alone.threads = 1; /* the GPU does it all */
    self->exchange = options->exchange;
    if ((rc = cnn_engine_init(&self->engine, &cuda_backend, &alone, err)) >= 0) {
        open_libraries(self, options->device);
        allocate_model(self);
        rc = finish(self, err);
    }
    if (rc >= 0)
        rc = cuda_push(&self->engine, err);
    if (rc < 0) {
        cuda_close(&self->engine);
        return rc;
    }
    *out = &self->engine;
    return 0;
}

extern "C" __attribute__((visibility("default"))) const struct cnn_backend *
ctrun_mnist_cuda_backend(void)
{
    return &cuda_backend;
}
