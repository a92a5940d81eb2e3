/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of the network: table, memory, initial values, layouts. */
#include "worker_sdk/cnn/net.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/hash.h"
#include "worker_sdk/cnn/random.h"

enum {
    ALIGN_FLOATS = 16
};

const struct cnn_param_info cnn_params[CNN_PARAMS] = {
    [CNN_CONV1_W] = {"conv1.weight", 4, {CNN_C1, 1, 3, 3}, 288, 9},
    [CNN_CONV1_B] = {"conv1.bias", 1, {CNN_C1}, 32, 9},
    [CNN_CONV2_W] = {"conv2.weight", 4, {CNN_C2, CNN_C1, 3, 3}, 18432, 288},
    [CNN_CONV2_B] = {"conv2.bias", 1, {CNN_C2}, 64, 288},
    [CNN_FC1_W] = {"fc1.weight", 2, {CNN_HIDDEN, CNN_FLAT}, 1179648, 9216},
    [CNN_FC1_B] = {"fc1.bias", 1, {CNN_HIDDEN}, 128, 9216},
    [CNN_FC2_W] = {"fc2.weight", 2, {CNN_CLASSES, CNN_HIDDEN}, 1280, 128},
    [CNN_FC2_B] = {"fc2.bias", 1, {CNN_CLASSES}, 10, 128},
};

static size_t padded(enum cnn_param p)
{
    return (cnn_params[p].count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

size_t cnn_tensors_length(void)
{
    size_t total = 0;

    for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
        total += padded(p);
    return total;
}

int cnn_tensors_init(struct cnn_tensors *tensors)
{
    const size_t bytes = cnn_tensors_length() * sizeof(float);
    size_t at = 0;

    tensors->block = aligned_alloc(64, bytes);
    if (!tensors->block)
        return -ENOMEM;
    memset(tensors->block, 0, bytes);
    for (enum cnn_param p = 0; p < CNN_PARAMS; at += padded(p), p++)
        tensors->of[p] = tensors->block + at;
    return 0;
}

void cnn_tensors_deinit(struct cnn_tensors *tensors)
{
    free(tensors->block);
    memset(tensors, 0, sizeof *tensors);
}

int cnn_model_init(struct cnn_model *model)
{
    memset(model, 0, sizeof *model);
    if (cnn_tensors_init(&model->values) < 0 ||
        cnn_tensors_init(&model->square_avg) < 0 ||
        cnn_tensors_init(&model->acc_delta) < 0) {
        cnn_model_deinit(model);
        return -ENOMEM;
    }
    return 0;
}

void cnn_model_deinit(struct cnn_model *model)
{
    cnn_tensors_deinit(&model->values);
    cnn_tensors_deinit(&model->square_avg);
    cnn_tensors_deinit(&model->acc_delta);
}

void cnn_model_reset(struct cnn_model *model, uint64_t seed)
{
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        const struct cnn_param_info *info = &cnn_params[p];
        const float bound = 1.0f / sqrtf((float)info->fan_in);

        /* The draw is over our layout: which weight gets which number is arbitrary anyway. */
        cnn_uniform(seed, (uint32_t)p, bound, model->values.of[p], info->count);
        memset(model->square_avg.of[p], 0, info->count * sizeof(float));
        memset(model->acc_delta.of[p], 0, info->count * sizeof(float));
    }
}

/* fc1.weight: torch (unit, channel, window), ours (window, channel, unit).
 * fc2.weight: torch (class, unit), ours (unit, class). Everything else is the same. */
static void transpose(size_t outer, size_t middle, size_t inner, const float *in,
                      float *out)
{
    for (size_t o = 0; o < outer; o++)
        for (size_t m = 0; m < middle; m++)
            for (size_t i = 0; i < inner; i++)
                out[(i * middle + m) * outer + o] = in[(o * middle + m) * inner + i];
}

void cnn_to_torch(enum cnn_param p, const float *in, float *out)
{
    if (p == CNN_FC1_W)
        transpose(CNN_WINDOWS, CNN_C2, CNN_HIDDEN, in, out);
    else if (p == CNN_FC2_W)
        transpose(CNN_HIDDEN, 1, CNN_CLASSES, in, out);
    else
        memcpy(out, in, cnn_params[p].count * sizeof *out);
}

void cnn_from_torch(enum cnn_param p, const float *in, float *out)
{
    if (p == CNN_FC1_W)
        transpose(CNN_HIDDEN, CNN_C2, CNN_WINDOWS, in, out);
    else if (p == CNN_FC2_W)
        transpose(CNN_CLASSES, 1, CNN_HIDDEN, in, out);
    else
        memcpy(out, in, cnn_params[p].count * sizeof *out);
}

/* FNV-1a over 32-bit words with a final mix: cheap, and every bit of every value counts. */
uint64_t cnn_digest(const struct cnn_tensors *tensors)
{
    uint64_t hash = CT_HASH_START;

    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        for (uint32_t i = 0; i < cnn_params[p].count; i++) {
            uint32_t bits;

            memcpy(&bits, &tensors->of[p][i], sizeof bits);
            hash = (hash ^ bits) * CT_HASH_PRIME;
            hash ^= hash >> 32;
        }
    }
    return hash;
}
