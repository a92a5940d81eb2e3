/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA back end: convolutions by cuDNN, fc1 by cuBLAS, everything between by kernels of our
 * own; data set, parameters and optimizer state live on the GPU.
 *
 * A step is one captured graph per batch size: gather, forward, backward and, when no other rank
 * has to see the gradients, the update. The host only stages indices, epoch, scale and learning
 * rate, through a ring of pinned slots, and does not wait for the step: settle() waits when the
 * loss is needed. With exchange the graph ends after backward, gradients are copied to the
 * reducer's memory, of the host or the device, in the order in which they are reported ready, and
 * update() copies the averages back.
 *
 * Convolutions may use TF32, like PyTorch's; NVIDIA_TF32_OVERRIDE=0 turns that off. The first
 * failure of any call stays in self->failed and is reported by the entry point in which it
 * happened. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/cnn/cuda_engine.cuh"

/* A training step needs the learning rate, or the ranks' agreement: it is launched later. */
static int cuda_forward(struct cnn_engine *engine, const struct cnn_batch *batch,
                        struct ctrun_error *err)
{
    struct cuda *self = (struct cuda *)engine;

    self->batch = *batch;
    if (batch->train || batch->count == 0)
        return cuda_finish(self, err);
    cuda_launch(self, GRAPH_TEST, 0);
    cuda_copy_log_probs(self);
    return cuda_finish(self, err);
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
        cuda_launch(self, GRAPH_GRADIENTS, 0);
        cuda_copy_log_probs(self);
    }
    for (int i = 0; i < CNN_PARAMS && rc >= 0; i++) {
        const enum cnn_param p = order[i];
        const size_t bytes = cnn_params[p].count * sizeof(float);

        if (self->exchange && self->batch.count == 0 && cuda_is_fine(self))
            cuda_check(self,
                       cudaMemsetAsync(cuda_grad(self, p), 0, bytes, self->stream),
                       "clear gradients");
        if (self->exchange && cuda_is_fine(self))
            cuda_check(self,
                       cudaMemcpyAsync(grads[p], cuda_grad(self, p), bytes,
                                       cudaMemcpyDefault, self->stream),
                       "copy gradients");
        if (self->exchange && cuda_is_fine(self))
            cuda_check(self, cudaStreamSynchronize(self->stream), "wait");
        rc = cuda_is_fine(self) ? on_ready(context, p, err) : cuda_finish(self, err);
    }
    return rc < 0 ? rc : 0;
}

static int cuda_update(struct cnn_engine *engine, float *const grads[CNN_PARAMS],
                       float lr, struct ctrun_error *err)
{
    struct cuda *self = (struct cuda *)engine;

    if (!self->exchange) {
        if (self->batch.count > 0)
            cuda_launch(self, GRAPH_STEP, lr);
        return cuda_finish(self, err);
    }
    /* The averages of a group of the device come in the order of the default stream. */
    if (cuda_is_fine(self))
        cuda_check(self, cudaStreamSynchronize(cudaStreamLegacy), "wait");
    cuda_reserve_batch(self, 1); /* the stage, for a rank that never had a sample */
    for (int p = 0; p < CNN_PARAMS && cuda_is_fine(self); p++)
        cuda_check(self,
                   cudaMemcpyAsync(cuda_grad(self, (enum cnn_param)p), grads[p],
                                   cnn_params[p].count * sizeof(float),
                                   cudaMemcpyDefault, self->stream),
                   "copy gradients");
    cuda_stage_step(self, &self->batch, lr);
    if (cuda_is_fine(self))
        cuda_run_update(self);
    /* The reducer may write to grads again when we return. */
    cuda_check(self, cudaStreamSynchronize(self->stream), "wait");
    return cuda_finish(self, err);
}

/* Copies the model between host and device, parameter by parameter: the two pad differently. */
static int move_model(struct cuda *self, enum cudaMemcpyKind kind,
                      struct ctrun_error *err)
{
    struct cnn_model *model = self->engine.model;
    const struct cnn_tensors *const host[] = {&model->values, &model->square_avg,
                                              &model->acc_delta};
    float *const device[] = {self->params, self->square_avg, self->acc_delta};

    for (int s = 0; s < 3; s++) {
        for (int p = 0; p < CNN_PARAMS && cuda_is_fine(self); p++) {
            float *there = device[s] + self->offset[p], *here = host[s]->of[p];
            const bool up = kind == cudaMemcpyHostToDevice;

            cuda_check(self,
                       cudaMemcpyAsync(up ? there : here, up ? here : there,
                                       cnn_params[p].count * sizeof(float), kind,
                                       self->stream),
                       "copy the model");
        }
    }
    cuda_check(self, cudaStreamSynchronize(self->stream), "wait");
    return cuda_finish(self, err);
}

static int cuda_push(struct cnn_engine *engine, struct ctrun_error *err)
{
    return move_model((struct cuda *)engine, cudaMemcpyHostToDevice, err);
}

static int cuda_pull(struct cnn_engine *engine, struct ctrun_error *err)
{
    return move_model((struct cuda *)engine, cudaMemcpyDeviceToHost, err);
}

static bool cuda_is_usable(char *why, size_t size)
{
    int count = 0;
    const cudaError_t rc = cudaGetDeviceCount(&count);

    if (rc != cudaSuccess || count == 0) {
        (void)ct_format(why, size, "no usable GPU: %s",
                        rc == cudaSuccess ? "CUDA finds none" : cudaGetErrorString(rc));
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
    cuda_release_batch(self);
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

    cuda_check(self, cudaGetDeviceCount(&count), "count GPUs");
    if (cuda_is_fine(self))
        cuda_check(self, cudaSetDevice(device % count), "choose a GPU");
    if (cuda_is_fine(self))
        cuda_check(self,
                   cudaStreamCreateWithFlags(&self->stream, cudaStreamNonBlocking),
                   "open a stream");
    for (int i = 0; i < SLOTS && cuda_is_fine(self); i++)
        cuda_check(
            self, cudaEventCreateWithFlags(&self->slot_free[i], cudaEventDisableTiming),
            "open an event");
    if (cuda_is_fine(self))
        cuda_check_dnn(self, cudnnCreate(&self->dnn), "open");
    if (cuda_is_fine(self))
        cuda_check_blas(self, cublasCreate(&self->blas), "open");
    if (!cuda_is_fine(self))
        return;
    cuda_check_dnn(self, cudnnSetStream(self->dnn, self->stream), "use our stream");
    cuda_check_blas(self, cublasSetStream(self->blas, self->stream), "use our stream");
}

static void allocate_model(struct cuda *self)
{
    for (int p = 0; p < CNN_PARAMS; p++) {
        self->offset[p] = self->floats;
        self->floats += (cnn_params[p].count + 63) / 64 * 64; /* 256-byte aligned */
    }
    self->params = cuda_alloc_floats(self, self->floats);
    self->grads = cuda_alloc_floats(self, self->floats);
    self->square_avg = cuda_alloc_floats(self, self->floats);
    self->acc_delta = cuda_alloc_floats(self, self->floats);
    self->sums = (struct device_sums *)cuda_alloc(self, sizeof *self->sums);
    self->conv_workspace = cuda_alloc(self, WORKSPACE_BYTES);
    self->blas_workspace = cuda_alloc(self, WORKSPACE_BYTES);
    if (cuda_is_fine(self)) /* cuBLAS must not allocate while a step is recorded */
        cuda_check_blas(
            self, cublasSetWorkspace(self->blas, self->blas_workspace, WORKSPACE_BYTES),
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

    if (options->no_dropout) {
        free(self);
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "--no-dropout: not on a GPU: give another --backend");
    }
    if (!self)
        return ct_fail(err, -ENOMEM, "open CUDA: out of memory");
    alone.threads = 1; /* the GPU does it all */
    self->exchange = options->exchange;
    if ((rc = cnn_engine_init(&self->engine, &cuda_backend, &alone, err)) >= 0) {
        open_libraries(self, options->device);
        allocate_model(self);
        rc = cuda_finish(self, err);
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
