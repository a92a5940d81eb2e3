/* SPDX-License-Identifier: Apache-2.0 */
/* One step on the stream: recorded once per batch size, then launched. */
#include "worker_sdk/cnn/cuda_kernels.cuh"

static unsigned blocks(size_t n)
{
    return (unsigned)((n + THREADS - 1) / THREADS);
}

/* c (m, n) = op(a) op(b), column-major as cuBLAS wants it: our row-major arrays are its
 * transposed ones, so (B, 9216) is 9216 x B here. */
static void gemm(struct cuda *self, cublasOperation_t ta, cublasOperation_t tb, int m,
                 int n, int k, const float *a, const float *b, float *c)
{
    const float one = 1, zero = 0;

    if (cuda_is_fine(self))
        cuda_check_blas(self,
                        cublasSgemm(self->blas, ta, tb, m, n, k, &one, a,
                                    ta == CUBLAS_OP_N ? m : k, b,
                                    tb == CUBLAS_OP_N ? k : n, &zero, c, m),
                        "multiply");
}

static float *param(const struct cuda *self, enum cnn_param p)
{
    return self->params + self->offset[p];
}

float *cuda_grad(const struct cuda *self, enum cnn_param p)
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
    cuda_conv_forward(self, conv1, self->x, param(self, CNN_CONV1_W), self->a1);
    bias_relu<<<blocks(values), THREADS, 0, self->stream>>>(
        self->a1, param(self, CNN_CONV1_B), values, CNN_C1, CNN_AREA1);
    cuda_conv_forward(self, conv2, self->a1, param(self, CNN_CONV2_W), self->a2);
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
        self->hidden, self->dlogits, n, cuda_grad(self, CNN_FC2_W));
    column_sums<<<1, CNN_CLASSES, 0, self->stream>>>(self->dlogits, n,
                                                     cuda_grad(self, CNN_FC2_B));
    column_sums<<<1, CNN_HIDDEN, 0, self->stream>>>(self->dhidden, n,
                                                    cuda_grad(self, CNN_FC1_B));
    gemm(self, CUBLAS_OP_N, CUBLAS_OP_T, CNN_HIDDEN, CNN_FLAT, (int)n, self->dhidden,
         self->flat, cuda_grad(self, CNN_FC1_W));
    gemm(self, CUBLAS_OP_T, CUBLAS_OP_N, CNN_FLAT, (int)n, CNN_HIDDEN,
         param(self, CNN_FC1_W), self->dhidden, self->dflat);
    pool_backward<<<dim3(CNN_WINDOWS, (unsigned)n), CNN_C2, 0, self->stream>>>(
        self->flat, self->dflat, self->from, self->da2);
    cuda_conv_backward_w(self, conv2, self->a1, self->da2, cuda_grad(self, CNN_CONV2_W),
                         cuda_grad(self, CNN_CONV2_B));
    cuda_conv_backward_x(self, conv2, param(self, CNN_CONV2_W), self->da2, self->da1);
    relu_backward<<<blocks(values), THREADS, 0, self->stream>>>(self->a1, self->da1,
                                                                values);
    cuda_conv_backward_w(self, conv1, self->x, self->da1, cuda_grad(self, CNN_CONV1_W),
                         cuda_grad(self, CNN_CONV1_B));
}

void cuda_run_update(struct cuda *self)
{
    adadelta<<<blocks(self->floats), THREADS, 0, self->stream>>>(
        self->params, self->grads, self->square_avg, self->acc_delta, self->floats,
        self->stage);
    cuda_check(self, cudaGetLastError(), "launch");
}

int cuda_settle(struct cnn_engine *engine, struct ctrun_error *err)
{
    struct cuda *self = (struct cuda *)engine;
    struct device_sums sums = {0, 0};

    if (cuda_is_fine(self))
        cuda_check(self,
                   cudaMemcpyAsync(&sums, self->sums, sizeof sums,
                                   cudaMemcpyDeviceToHost, self->stream),
                   "copy sums");
    if (cuda_is_fine(self))
        cuda_check(self, cudaMemsetAsync(self->sums, 0, sizeof sums, self->stream),
                   "clear sums");
    cuda_check(self, cudaStreamSynchronize(self->stream), "wait");
    engine->sums.loss += sums.loss;
    engine->sums.correct += sums.correct;
    engine->sums.count += self->counted;
    self->counted = 0;
    return cuda_finish(self, err);
}

/* Runs forward and backward once on sample 0 with weight 0: libraries load their kernels and
 * allocate what they need at the first call, which must not happen while a step is recorded. The
 * sums on the device are fetched first; the sums of this run are thrown away. */
static void warm_up(struct cuda *self, const struct conv *conv1,
                    const struct conv *conv2, const struct device_data *data, size_t n)
{
    (void)cuda_settle(&self->engine, NULL); /* a failure stays in self->failed */
    if (!cuda_is_fine(self))
        return;
    cuda_check(self,
               cudaMemsetAsync(self->stage, 0,
                               sizeof(struct stage) + n * sizeof(uint32_t),
                               self->stream),
               "clear");
    run_forward(self, conv1, conv2, data, n, true);
    run_backward(self, conv1, conv2, n);
    cuda_check(self, cudaMemsetAsync(self->sums, 0, sizeof *self->sums, self->stream),
               "clear");
    cuda_check(self, cudaGetLastError(), "launch");
    cuda_check(self, cudaStreamSynchronize(self->stream), "wait");
}

/* Records a step of n samples; it runs when the graph is launched. */
static cudaGraphExec_t capture(struct cuda *self, enum graph_kind kind, size_t n,
                               const struct device_data *data)
{
    cudaGraphExec_t exec = NULL;
    cudaGraph_t graph = NULL;
    struct conv conv1, conv2;

    cuda_conv_open(self, &conv1, n, 1, CNN_C1, CNN_SIDE);
    cuda_conv_open(self, &conv2, n, CNN_C1, CNN_C2, CNN_SIDE1);
    if (cuda_is_fine(self))
        warm_up(self, &conv1, &conv2, data, n);
    if (cuda_is_fine(self)) {
        cuda_check(
            self,
            cudaStreamBeginCapture(self->stream, cudaStreamCaptureModeThreadLocal),
            "record");
        run_forward(self, &conv1, &conv2, data, n, kind != GRAPH_TEST);
        if (kind != GRAPH_TEST)
            run_backward(self, &conv1, &conv2, n);
        if (kind == GRAPH_STEP)
            cuda_run_update(self);
        cuda_check(self, cudaStreamEndCapture(self->stream, &graph), "record");
        cuda_check(self, cudaGetLastError(), "record");
    }
    if (cuda_is_fine(self))
        cuda_check(self, cudaGraphInstantiate(&exec, graph, 0), "prepare a step");
    if (graph)
        cudaGraphDestroy(graph);
    cuda_conv_close(&conv1);
    cuda_conv_close(&conv2);
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
        cuda_check(self, cudaStreamSynchronize(self->stream), "wait");
        cuda_forget_graphs(self);
    }
    graph = &self->graphs[self->graph_count];
    graph->exec = capture(self, kind, n, data);
    graph->kind = kind;
    graph->n = n;
    graph->data = data->key;
    if (cuda_is_fine(self))
        self->graph_count++;
    return cuda_is_fine(self) ? graph->exec : NULL;
}

void cuda_stage_step(struct cuda *self, const struct cnn_batch *batch, float lr)
{
    const unsigned at = self->next_slot++ % SLOTS;
    struct stage *slot = self->slots[at];

    if (!cuda_is_fine(self))
        return;
    cuda_check(self, cudaEventSynchronize(self->slot_free[at]), "wait");
    slot->epoch = batch->epoch;
    slot->scale = batch->scale;
    slot->lr = lr;
    for (size_t i = 0; i < batch->count; i++)
        slot->indices[i] = (uint32_t)batch->indices[i];
    cuda_check(self,
               cudaMemcpyAsync(self->stage, slot,
                               sizeof *slot + batch->count * sizeof(uint32_t),
                               cudaMemcpyHostToDevice, self->stream),
               "stage a step");
    cuda_check(self, cudaEventRecord(self->slot_free[at], self->stream),
               "stage a step");
}

void cuda_launch(struct cuda *self, enum graph_kind kind, float lr)
{
    const struct cnn_batch *batch = &self->batch;
    const struct device_data *data;
    cudaGraphExec_t exec;

    cuda_reserve_batch(self, batch->count);
    data = cuda_find_data(self, batch->data);
    exec = cuda_is_fine(self) ? find_graph(self, kind, batch->count, data) : NULL;
    cuda_stage_step(self, batch, lr);
    if (exec && cuda_is_fine(self))
        cuda_check(self, cudaGraphLaunch(exec, self->stream), "run a step");
    self->counted += batch->count;
}

void cuda_copy_log_probs(struct cuda *self)
{
    if (!self->batch.log_probs || !cuda_is_fine(self))
        return;
    cuda_check(self,
               cudaMemcpyAsync(self->batch.log_probs, self->log_probs,
                               self->batch.count * CNN_CLASSES * sizeof(float),
                               cudaMemcpyDeviceToHost, self->stream),
               "copy results");
    cuda_check(self, cudaStreamSynchronize(self->stream), "wait");
}
