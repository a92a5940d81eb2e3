/* SPDX-License-Identifier: Apache-2.0 */
#include "gpt.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    T = GPT_CONTEXT,
    C = GPT_WIDTH,
    V = GPT_VOCAB,
    H = GPT_HEADS,
    D = C / H, /* width of a head */
    F = GPT_HIDDEN
};

/* What a forward keeps for its backward, for one sequence at a time. */
static struct layer {
    float x[T * C], norm1[T * C], qkv[T * 3 * C], weights[H * T * T], mixed[T * C];
    float middle[T * C], norm2[T * C], up[T * F], hidden[T * F];
} layers[GPT_LAYERS];
static float last[T * C], last_norm[T * C], chances[T * V];

const char *gpt_shape(int p, size_t *rows, size_t *columns)
{
    static const struct {
        const char *name;
        size_t rows, columns;
    } of_layer[] = {{"qkv", 3 * C, C}, {"merge", C, C}, {"up", F, C}, {"down", C, F}};
    static char names[GPT_PARAMS][24];
    const int k = (p - GPT_LAYER) % 4;

    if (p == GPT_EMBED || p == GPT_HEAD || p == GPT_POSITION) {
        *rows = p == GPT_POSITION ? T : V;
        *columns = C;
        return p == GPT_EMBED ? "embed" : p == GPT_HEAD ? "head" : "position";
    }
    *rows = of_layer[k].rows;
    *columns = of_layer[k].columns;
    snprintf(names[p], sizeof names[p], "layer%d.%s", (p - GPT_LAYER) / 4,
             of_layer[k].name);
    return names[p];
}

int gpt_create(struct gpt *gpt, unsigned seed)
{
    size_t rows, columns, total = 0, used = 0;

    for (int p = 0; p < GPT_PARAMS; p++) {
        gpt_shape(p, &rows, &columns);
        total += rows * columns;
    }
    *gpt = (struct gpt){.values = {malloc(2 * total * sizeof(float))}};
    if (!gpt->values[0])
        return -ENOMEM;
    for (int p = 0; p < GPT_PARAMS; p++) {
        gpt_shape(p, &rows, &columns);
        gpt->values[p] = gpt->values[0] + used;
        gpt->grads[p] = gpt->values[p] + total;
        used += rows * columns;
    }
    for (size_t i = 0; i < total; i++) { /* even, of standard deviation 0.06 */
        seed = seed * 1664525 + 1013904223;
        gpt->values[0][i] = ((float)(seed >> 8) / 16777216 - 0.5f) * 0.2f;
    }
    return 0;
}

void gpt_destroy(struct gpt *gpt)
{
    free(gpt->values[0]);
}

/* out (T, outs) = in (T, ins) times w (outs, ins) transposed; added to out. */
static void linear(float *out, const float *in, const float *w, int outs, int ins)
{
    for (int t = 0; t < T; t++)
        for (int o = 0; o < outs; o++) {
            float sum = 0;

#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < ins; i++)
                sum += in[t * ins + i] * w[o * ins + i];
            out[t * outs + o] += sum;
        }
}

/* Adds to din and dw their gradients for the gradient dout. */
static void linear_back(float *din, float *dw, const float *dout, const float *in,
                        const float *w, int outs, int ins)
{
    for (int t = 0; t < T; t++)
        for (int o = 0; o < outs; o++) {
            const float d = dout[t * outs + o];

#pragma omp simd
            for (int i = 0; i < ins; i++) {
                din[t * ins + i] += d * w[o * ins + i];
                dw[o * ins + i] += d * in[t * ins + i];
            }
        }
}

static float scale_of(const float *x)
{
    float sum = 0;

    for (int c = 0; c < C; c++)
        sum += x[c] * x[c];
    return 1 / sqrtf(sum / C + 1e-5f);
}

static void norm(float *out, const float *x)
{
    for (int t = 0; t < T; t++) {
        const float scale = scale_of(x + t * C);

        for (int c = 0; c < C; c++)
            out[t * C + c] = scale * x[t * C + c];
    }
}

/* Adds to dx: d(s x)/dx = s (1 - y y^T / C), where y = s x. */
static void norm_back(float *dx, const float *dy, const float *y, const float *x)
{
    for (int t = 0; t < T; t++) {
        const float scale = scale_of(x + t * C);
        float dot = 0;

        for (int c = 0; c < C; c++)
            dot += dy[t * C + c] * y[t * C + c];
        for (int c = 0; c < C; c++)
            dx[t * C + c] += scale * (dy[t * C + c] - y[t * C + c] * dot / C);
    }
}

/* Turns the first `count` of x into probabilities that add up to 1. */
static void softmax(float *x, int count)
{
    float top = x[0], sum = 0;

    for (int i = 1; i < count; i++)
        top = x[i] > top ? x[i] : top;
    for (int i = 0; i < count; i++)
        sum += x[i] = expf(x[i] - top);
    for (int i = 0; i < count; i++)
        x[i] /= sum;
}

static float dot(const float *a, const float *b)
{
    float sum = 0;

    for (int d = 0; d < D; d++)
        sum += a[d] * b[d];
    return sum;
}

/* Causal attention: each position attends to itself and the positions before it. */
static void attend(struct layer *layer)
{
    memset(layer->mixed, 0, sizeof layer->mixed);
    for (int h = 0; h < H; h++)
        for (int t = 0; t < T; t++) {
            float *weights = layer->weights + (h * T + t) * T;
            const float *q = layer->qkv + t * 3 * C + h * D;

            for (int s = 0; s <= t; s++)
                weights[s] = dot(q, layer->qkv + s * 3 * C + C + h * D) / sqrtf(D);
            softmax(weights, t + 1);
            for (int s = 0; s <= t; s++)
                for (int d = 0; d < D; d++)
                    layer->mixed[t * C + h * D + d] +=
                        weights[s] * layer->qkv[s * 3 * C + 2 * C + h * D + d];
        }
}

static void attend_back(float *dqkv, const float *dmixed, const struct layer *layer)
{
    for (int h = 0; h < H; h++)
        for (int t = 0; t < T; t++) {
            const float *weights = layer->weights + (h * T + t) * T;
            const float *dout = dmixed + t * C + h * D;
            const float *q = layer->qkv + t * 3 * C + h * D;
            float mean = 0;

            for (int s = 0; s <= t; s++)
                mean += weights[s] * dot(dout, layer->qkv + s * 3 * C + 2 * C + h * D);
            for (int s = 0; s <= t; s++) {
                const float *k = layer->qkv + s * 3 * C + C + h * D;
                const float slope = weights[s] * (dot(dout, k + C) - mean) / sqrtf(D);

                for (int d = 0; d < D; d++) {
                    dqkv[t * 3 * C + h * D + d] += slope * k[d];
                    dqkv[s * 3 * C + C + h * D + d] += slope * q[d];
                    dqkv[s * 3 * C + 2 * C + h * D + d] += weights[s] * dout[d];
                }
            }
        }
}

/* x: the input of the layer, replaced by its output. */
static void forward_layer(struct layer *layer, float *const *values, float *x)
{
    memcpy(layer->x, x, sizeof layer->x);
    memset(layer->qkv, 0, sizeof layer->qkv);
    memset(layer->up, 0, sizeof layer->up);
    norm(layer->norm1, x);
    linear(layer->qkv, layer->norm1, values[GPT_QKV], 3 * C, C);
    attend(layer);
    linear(x, layer->mixed, values[GPT_MERGE], C, C);
    memcpy(layer->middle, x, sizeof layer->middle);
    norm(layer->norm2, x);
    linear(layer->up, layer->norm2, values[GPT_UP], F, C);
    for (int i = 0; i < T * F; i++)
        layer->hidden[i] = layer->up[i] > 0 ? layer->up[i] * layer->up[i] : 0;
    linear(x, layer->hidden, values[GPT_DOWN], C, F);
}

float gpt_forward(const struct gpt *gpt, const unsigned char *tokens)
{
    float loss = 0;

    for (int i = 0; i < T * C; i++)
        last[i] = gpt->values[GPT_EMBED][tokens[i / C] * C + i % C] +
                  gpt->values[GPT_POSITION][i];
    for (int l = 0; l < GPT_LAYERS; l++)
        forward_layer(&layers[l], gpt->values + GPT_LAYER + 4 * l, last);
    norm(last_norm, last);
    memset(chances, 0, sizeof chances);
    linear(chances, last_norm, gpt->values[GPT_HEAD], V, C);
    for (int t = 0; t < T; t++) {
        softmax(chances + t * V, V);
        loss -= logf(chances[t * V + tokens[t + 1]]);
    }
    return loss / T;
}

/* dx: the gradient of the layer's output, replaced by the gradient of its input. */
static int backward_layer(const struct layer *layer, float *const *values,
                          float *const *grads, float *dx, int first,
                          int (*ready)(void *, int), void *context)
{
    static float dhidden[T * F], dnorm[T * C], dmixed[T * C], dqkv[T * 3 * C];
    int rc = 0;

    memset(dhidden, 0, sizeof dhidden);
    linear_back(dhidden, grads[GPT_DOWN], dx, layer->hidden, values[GPT_DOWN], C, F);
    for (int i = 0; i < T * F; i++)
        dhidden[i] *= layer->up[i] > 0 ? 2 * layer->up[i] : 0;
    memset(dnorm, 0, sizeof dnorm);
    linear_back(dnorm, grads[GPT_UP], dhidden, layer->norm2, values[GPT_UP], F, C);
    norm_back(dx, dnorm, layer->norm2, layer->middle);
    memset(dmixed, 0, sizeof dmixed);
    linear_back(dmixed, grads[GPT_MERGE], dx, layer->mixed, values[GPT_MERGE], C, C);
    memset(dqkv, 0, sizeof dqkv);
    attend_back(dqkv, dmixed, layer);
    memset(dnorm, 0, sizeof dnorm);
    linear_back(dnorm, grads[GPT_QKV], dqkv, layer->norm1, values[GPT_QKV], 3 * C, C);
    norm_back(dx, dnorm, layer->norm1, layer->x);
    for (int k = 3; k >= 0 && ready && rc >= 0; k--)
        rc = ready(context, first + k);
    return rc;
}

int gpt_backward(struct gpt *gpt, const unsigned char *tokens, float scale,
                 int (*ready)(void *context, int p), void *context)
{
    static float dlogits[T * V], dnorm[T * C], dx[T * C];
    int rc;

    for (int i = 0; i < T * V; i++)
        dlogits[i] = (chances[i] - (float)(tokens[i / V + 1] == i % V)) * scale / T;
    memset(dnorm, 0, sizeof dnorm);
    memset(dx, 0, sizeof dx);
    linear_back(dnorm, gpt->grads[GPT_HEAD], dlogits, last_norm, gpt->values[GPT_HEAD],
                V, C);
    norm_back(dx, dnorm, last_norm, last);
    rc = ready ? ready(context, GPT_HEAD) : 0;
    for (int l = GPT_LAYERS - 1; l >= 0 && rc >= 0; l--)
        rc = backward_layer(&layers[l], gpt->values + GPT_LAYER + 4 * l,
                            gpt->grads + GPT_LAYER + 4 * l, dx, GPT_LAYER + 4 * l,
                            ready, context);
    for (int i = 0; i < T * C; i++) {
        gpt->grads[GPT_EMBED][tokens[i / C] * C + i % C] += dx[i];
        gpt->grads[GPT_POSITION][i] += dx[i];
    }
    for (int p = GPT_POSITION; p >= GPT_EMBED && ready && rc >= 0; p--)
        rc = ready(context, p);
    return rc;
}

int gpt_predict(int t)
{
    int best = 0;

    for (int i = 1; i < V; i++)
        if (chances[t * V + i] > chances[t * V + best])
            best = i;
    return best;
}
