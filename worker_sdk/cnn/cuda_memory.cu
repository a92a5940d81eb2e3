/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, and memory of the device. */
#include <errno.h>

#include "worker_sdk/cnn/cuda_engine.cuh"

bool cuda_is_fine(const struct cuda *self)
{
    return self->failed.code == 0;
}

void cuda_check(struct cuda *self, cudaError_t rc, const char *what)
{
    if (rc != cudaSuccess && cuda_is_fine(self))
        ct_fail(&self->failed,
                rc == cudaErrorMemoryAllocation ? -ENOMEM : CTRUN_E_UNSUPPORTED,
                "CUDA: %s: %s", what, cudaGetErrorString(rc));
}

void cuda_check_dnn(struct cuda *self, cudnnStatus_t rc, const char *what)
{
    if (rc != CUDNN_STATUS_SUCCESS && cuda_is_fine(self))
        ct_fail(&self->failed, CTRUN_E_UNSUPPORTED, "cuDNN: %s: %s", what,
                cudnnGetErrorString(rc));
}

void cuda_check_blas(struct cuda *self, cublasStatus_t rc, const char *what)
{
    if (rc != CUBLAS_STATUS_SUCCESS && cuda_is_fine(self))
        ct_fail(&self->failed, CTRUN_E_UNSUPPORTED, "cuBLAS: %s: %s", what,
                cublasGetStatusString(rc));
}

int cuda_finish(struct cuda *self, struct ctrun_error *err)
{
    if (cuda_is_fine(self))
        return 0;
    if (err)
        *err = self->failed;
    return self->failed.code;
}

/* ---- Memory ------------------------------------------------------------------------------ */

void *cuda_alloc(struct cuda *self, size_t bytes)
{
    void *memory = NULL;

    if (cuda_is_fine(self))
        cuda_check(self, cudaMalloc(&memory, bytes), "allocate");
    if (memory)
        cuda_check(self, cudaMemsetAsync(memory, 0, bytes, self->stream), "clear");
    return memory;
}

float *cuda_alloc_floats(struct cuda *self, size_t n)
{
    return (float *)cuda_alloc(self, n * sizeof(float));
}

void cuda_forget_graphs(struct cuda *self)
{
    for (int i = 0; i < self->graph_count; i++)
        cudaGraphExecDestroy(self->graphs[i].exec);
    self->graph_count = 0;
}

void cuda_release_batch(struct cuda *self)
{
    float *const arrays[] = {self->x,       self->a1,        self->a2,     self->da1,
                             self->da2,     self->flat,      self->dflat,  self->hidden,
                             self->dhidden, self->log_probs, self->dlogits};

    cuda_forget_graphs(self); /* they hold the addresses */
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

void cuda_reserve_batch(struct cuda *self, size_t n)
{
    const size_t stage_bytes = sizeof(struct stage) + n * sizeof(uint32_t);

    if (n <= self->capacity || !cuda_is_fine(self))
        return;
    cuda_check(self, cudaStreamSynchronize(self->stream), "wait");
    cuda_release_batch(self);
    self->x = cuda_alloc_floats(self, n * CNN_PIXELS);
    self->a1 = cuda_alloc_floats(self, n * CNN_C1 * CNN_AREA1);
    self->da1 = cuda_alloc_floats(self, n * CNN_C1 * CNN_AREA1);
    self->a2 = cuda_alloc_floats(self, n * CNN_C2 * CNN_AREA2);
    self->da2 = cuda_alloc_floats(self, n * CNN_C2 * CNN_AREA2);
    self->flat = cuda_alloc_floats(self, n * CNN_FLAT);
    self->dflat = cuda_alloc_floats(self, n * CNN_FLAT);
    self->hidden = cuda_alloc_floats(self, n * CNN_HIDDEN);
    self->dhidden = cuda_alloc_floats(self, n * CNN_HIDDEN);
    self->log_probs = cuda_alloc_floats(self, n * CNN_CLASSES);
    self->dlogits = cuda_alloc_floats(self, n * CNN_CLASSES);
    self->from = (uint8_t *)cuda_alloc(self, n * CNN_FLAT);
    self->labels = (uint8_t *)cuda_alloc(self, n);
    self->stage = (struct stage *)cuda_alloc(self, stage_bytes);
    for (int i = 0; i < SLOTS && cuda_is_fine(self); i++)
        cuda_check(self, cudaMallocHost((void **)&self->slots[i], stage_bytes),
                   "pin memory");
    if (cuda_is_fine(self))
        self->capacity = n;
}

const struct device_data *cuda_find_data(struct cuda *self,
                                         const struct ctrun_dataset *key)
{
    struct device_data *data = self->data;

    while (data < self->data + DATASETS - 1 && data->key && data->key != key)
        data++;
    if (data->key == key)
        return data;
    cuda_check(self, cudaStreamSynchronize(self->stream), "wait");
    cuda_forget_graphs(self);
    cudaFree(data->images);
    cudaFree(data->labels);
    data->images = (uint8_t *)cuda_alloc(self, key->count * CNN_PIXELS);
    data->labels = (uint8_t *)cuda_alloc(self, key->count);
    data->key = key;
    if (!cuda_is_fine(self))
        return data;
    cuda_check(self,
               cudaMemcpyAsync(data->images, key->images, key->count * CNN_PIXELS,
                               cudaMemcpyHostToDevice, self->stream),
               "copy images");
    cuda_check(self,
               cudaMemcpyAsync(data->labels, key->labels, key->count,
                               cudaMemcpyHostToDevice, self->stream),
               "copy labels");
    return data;
}
