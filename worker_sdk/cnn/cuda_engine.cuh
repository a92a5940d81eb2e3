/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the CUDA back end; no other file includes it.
 *
 *     layers_cuda.cu    the table of cnn/backend.h
 *     cuda_step.cu      a step: forward, backward, update, and the graphs that hold it
 *     cuda_conv.cu      convolutions
 *     cuda_kernels.cu   everything between
 *     cuda_memory.cu    errors, arrays, the data set's copy
 *
 * No function here returns a status: the first failure of any call stays in self->failed, and
 * the calls after it do nothing. All work is queued on self->stream. */
#ifndef CNN_CUDA_ENGINE_CUH
#define CNN_CUDA_ENGINE_CUH

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <stdint.h>

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

/* The host's input to a step; indices follow. */
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

/* ---- cuda_memory.cu ---------------------------------------------------------------------- */

bool cuda_is_fine(const struct cuda *self);
void cuda_check(struct cuda *self, cudaError_t rc, const char *what);
void cuda_check_dnn(struct cuda *self, cudnnStatus_t rc, const char *what);
void cuda_check_blas(struct cuda *self, cublasStatus_t rc, const char *what);
/* What an entry point returns. */
int cuda_finish(struct cuda *self, struct ctrun_error *err);
/* Zeroed; NULL after a failure. */
void *cuda_alloc(struct cuda *self, size_t bytes);
float *cuda_alloc_floats(struct cuda *self, size_t n);
/* The arrays of a batch hold n samples from now on. */
void cuda_reserve_batch(struct cuda *self, size_t n);
void cuda_release_batch(struct cuda *self);
/* Drops the graphs, which hold addresses of arrays. */
void cuda_forget_graphs(struct cuda *self);
/* The data set's copy on the device, copied there at its first use. */
const struct device_data *cuda_find_data(struct cuda *self,
                                         const struct ctrun_dataset *key);

/* ---- cuda_conv.cu ------------------------------------------------------------------------ */

/* From (n, in, side, side) to (n, out, side - 2, side - 2). */
void cuda_conv_open(struct cuda *self, struct conv *conv, size_t n, int in, int out,
                    int side);
void cuda_conv_close(struct conv *conv);
void cuda_conv_forward(struct cuda *self, const struct conv *conv, const float *x,
                       const float *w, float *y);
void cuda_conv_backward_w(struct cuda *self, const struct conv *conv, const float *x,
                          const float *dy, float *dw, float *db);
void cuda_conv_backward_x(struct cuda *self, const struct conv *conv, const float *w,
                          const float *dy, float *dx);

/* ---- cuda_step.cu ------------------------------------------------------------------------ */

/* The gradient of one parameter, on the device. */
float *cuda_grad(const struct cuda *self, enum cnn_param p);
/* Copies the host's input into the next pinned slot and from there to the device; waits only
 * when the host is SLOTS steps ahead. */
void cuda_stage_step(struct cuda *self, const struct cnn_batch *batch, float lr);
/* Queues a step on self->batch. */
void cuda_launch(struct cuda *self, enum graph_kind kind, float lr);
/* Queues the update alone, with the gradients that are on the device. */
void cuda_run_update(struct cuda *self);
/* Waits, when the batch asks for them. */
void cuda_copy_log_probs(struct cuda *self);
/* As the table of cnn/backend.h has it: waits for the sums. */
int cuda_settle(struct cnn_engine *engine, struct ctrun_error *err);

#endif
