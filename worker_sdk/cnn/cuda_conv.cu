/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions of 3 x 3 by cuDNN. */
#include <string.h>

#include "worker_sdk/cnn/cuda_engine.cuh"

static void tensor_of(struct cuda *self, cudnnTensorDescriptor_t *out, size_t n,
                      int channels, int side)
{
    cuda_check_dnn(self, cudnnCreateTensorDescriptor(out), "describe a tensor");
    if (cuda_is_fine(self))
        cuda_check_dnn(self,
                       cudnnSetTensor4dDescriptor(*out, CUDNN_TENSOR_NCHW,
                                                  CUDNN_DATA_FLOAT, (int)n, channels,
                                                  side, side),
                       "describe a tensor");
}

void cuda_conv_close(struct conv *conv)
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

/* The fastest deterministic algorithm, by cuDNN's own estimate, that fits into our workspace. */
template <typename Result>
static int choose(struct cuda *self, const Result *found, int count, const char *what)
{
    for (int i = 0; i < count; i++)
        if (found[i].status == CUDNN_STATUS_SUCCESS &&
            found[i].determinism == CUDNN_DETERMINISTIC &&
            found[i].memory <= (size_t)WORKSPACE_BYTES)
            return i;
    cuda_check_dnn(self, CUDNN_STATUS_NOT_SUPPORTED, what);
    return 0;
}

static void choose_algorithms(struct cuda *self, struct conv *conv)
{
    cudnnConvolutionFwdAlgoPerf_t forward[8];
    cudnnConvolutionBwdFilterAlgoPerf_t filter[8];
    cudnnConvolutionBwdDataAlgoPerf_t data[8];
    int n = 0;

    if (!cuda_is_fine(self))
        return;
    cuda_check_dnn(self,
                   cudnnGetConvolutionForwardAlgorithm_v7(
                       self->dnn, conv->x, conv->w, conv->op, conv->y, 8, &n, forward),
                   "forward");
    conv->forward = forward[choose(self, forward, n, "forward")].algo;
    cuda_check_dnn(self,
                   cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                       self->dnn, conv->x, conv->y, conv->op, conv->w, 8, &n, filter),
                   "weight gradient");
    conv->backward_w = filter[choose(self, filter, n, "weight gradient")].algo;
    cuda_check_dnn(self,
                   cudnnGetConvolutionBackwardDataAlgorithm_v7(
                       self->dnn, conv->w, conv->y, conv->op, conv->x, 8, &n, data),
                   "input gradient");
    conv->backward_x = data[choose(self, data, n, "input gradient")].algo;
}

void cuda_conv_open(struct cuda *self, struct conv *conv, size_t n, int in, int out,
                    int side)
{
    memset(conv, 0, sizeof *conv);
    tensor_of(self, &conv->x, n, in, side);
    tensor_of(self, &conv->y, n, out, side - 2);
    tensor_of(self, &conv->bias, 1, out, 1);
    cuda_check_dnn(self, cudnnCreateFilterDescriptor(&conv->w), "describe weights");
    cuda_check_dnn(self, cudnnCreateConvolutionDescriptor(&conv->op),
                   "describe a convolution");
    if (!cuda_is_fine(self))
        return;
    cuda_check_dnn(self,
                   cudnnSetFilter4dDescriptor(conv->w, CUDNN_DATA_FLOAT,
                                              CUDNN_TENSOR_NCHW, out, in, 3, 3),
                   "describe weights");
    cuda_check_dnn(self,
                   cudnnSetConvolution2dDescriptor(conv->op, 0, 0, 1, 1, 1, 1,
                                                   CUDNN_CROSS_CORRELATION,
                                                   CUDNN_DATA_FLOAT),
                   "describe a convolution");
    choose_algorithms(self, conv);
}

void cuda_conv_forward(struct cuda *self, const struct conv *conv, const float *x,
                       const float *w, float *y)
{
    const float one = 1, zero = 0;

    if (cuda_is_fine(self))
        cuda_check_dnn(self,
                       cudnnConvolutionForward(self->dnn, &one, conv->x, x, conv->w, w,
                                               conv->op, conv->forward,
                                               self->conv_workspace, WORKSPACE_BYTES,
                                               &zero, conv->y, y),
                       "forward");
}

void cuda_conv_backward_w(struct cuda *self, const struct conv *conv, const float *x,
                          const float *dy, float *dw, float *db)
{
    const float one = 1, zero = 0;

    if (!cuda_is_fine(self))
        return;
    cuda_check_dnn(self,
                   cudnnConvolutionBackwardFilter(self->dnn, &one, conv->x, x, conv->y,
                                                  dy, conv->op, conv->backward_w,
                                                  self->conv_workspace, WORKSPACE_BYTES,
                                                  &zero, conv->w, dw),
                   "weight gradient");
    cuda_check_dnn(self,
                   cudnnConvolutionBackwardBias(self->dnn, &one, conv->y, dy, &zero,
                                                conv->bias, db),
                   "bias gradient");
}

void cuda_conv_backward_x(struct cuda *self, const struct conv *conv, const float *w,
                          const float *dy, float *dx)
{
    const float one = 1, zero = 0;

    if (cuda_is_fine(self))
        cuda_check_dnn(self,
                       cudnnConvolutionBackwardData(
                           self->dnn, &one, conv->w, w, conv->y, dy, conv->op,
                           conv->backward_x, self->conv_workspace, WORKSPACE_BYTES,
                           &zero, conv->x, dx),
                       "input gradient");
}
