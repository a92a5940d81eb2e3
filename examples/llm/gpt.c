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
    D = C / H,
    F = 4 * C
};
enum { /* of the parameters, and of those of a layer */
    EMBED,
    POSITION,
    LAYER,
    HEAD = GPT_PARAMS - 1
};
enum {
    QKV,
    MERGE,
    UP,
    DOWN
};

/* What a forward keeps for its backward. */
static struct layer {
    float x[T * C], norm1[T * C], qkv[T * 3 * C], weights[H * T * T], mixed[T * C];
    float middle[T * C], norm2[T * C], up[T * F], hidden[T * F];
} layers[GPT_LAYERS];
static float last[T * C], last_norm[T * C], chances[T * V];

int gpt_create(struct gpt *gpt, unsigned seed)
{
    static const char *const names[] = {"qkv", "merge", "up", "down"};
    static const int rows[] = {3 * C, C, F, C}, columns[] = {C, C, C, F};
    size_t total = 0, used = 0;

    for (int p = 0; p < GPT_PARAMS; p++) {
        struct gpt_param *param = &gpt->params[p];
        const int l = (p - LAYER) / 4, k = (p - LAYER) % 4;
        const int is_outer = p < LAYER || p == HEAD;

        if (is_outer)
            snprintf(param->name, sizeof param->name, "%s",
                     p == EMBED  ? "embed"
                     : p == HEAD ? "head"
                                 : "position");
        else
            snprintf(param->name, sizeof param->name, "layer%d.%s", l, names[k]);
        param->rows = is_outer ? p == POSITION ? T : V : rows[k];
        param->columns = is_outer ? C : columns[k];
        total += (size_t)(param->rows * param->columns);
    }
    float *const values = malloc(2 * total * sizeof *values);
    for (int p = 0; p < GPT_PARAMS; p++) {
        gpt->params[p].value = values ? values + used : NULL;
        gpt->params[p].grad = values ? values + total + used : NULL;
        used += (size_t)(gpt->params[p].rows * gpt->params[p].columns);
    }
    for (size_t i = 0; values && i < total;
         i++) { /* even, of standard deviation 0.06 */
        seed = seed * 1664525 + 1013904223;
        values[i] = ((float)(seed >> 8) / 16777216 - 0.5f) * 0.2f;
    }
    return values ? 0 : -ENOMEM;
}

void gpt_destroy(struct gpt *gpt)
{
    free(gpt->params[0].value);
}

/* out (T, outs) = in (T, ins) times w (outs, ins) transposed; added to out. */
static void linear(float *out, const float *in, const struct gpt_param *w)
{
    const int outs = w->rows, ins = w->columns;

    for (int t = 0; t < T; t++)
        for (int o = 0; o < outs; o++) {
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < ins; i++)
                sum += in[t * ins + i] * w->value[o * ins + i];
            out[t * outs + o] += sum;
        }
}

/* din, of `ins` each: the gradient for dout. w's gradient is added to it. */
static void linear_back(float *din, const float *dout, const float *in,
                        struct gpt_param *w)
{
    const int outs = w->rows, ins = w->columns;

    memset(din, 0, sizeof *din * (size_t)(T * ins));
    for (int t = 0; t < T; t++)
        for (int o = 0; o < outs; o++) {
            const float d = dout[t * outs + o];
#pragma omp simd
            for (int i = 0; i < ins; i++) {
                din[t * ins + i] += d * w->value[o * ins + i];
                w->grad[o * ins + i] += d * in[t * ins + i];
            }
        }
}

static float dot(const float *a, const float *b, int count)
{
    float sum = 0;

    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void norm(float *out, const float *x)
{
    for (int t = 0; t < T; t++, x += C)
        for (int c = 0; c < C; c++)
            out[t * C + c] = x[c] / sqrtf(dot(x, x, C) / C + 1e-5f);
}

/* Adds to dx: d(s x)/dx = s (1 - y y^T / C), where y = s x. */
static void norm_back(float *dx, const float *dy, const float *y, const float *x)
{
    for (int t = 0; t < T; t++, dx += C, dy += C, y += C, x += C) {
        const float scale = 1 / sqrtf(dot(x, x, C) / C + 1e-5f),
                    mean = dot(dy, y, C) / C;

        for (int c = 0; c < C; c++)
            dx[c] += scale * (dy[c] - y[c] * mean);
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

/* Causal attention: each position attends to itself and the positions before it. */
static void attend(struct layer *l)
{
    memset(l->mixed, 0, sizeof l->mixed);
    for (int h = 0; h < H; h++)
        for (int t = 0; t < T; t++) {
            float *weights = l->weights + (h * T + t) * T,
                  *out = l->mixed + t * C + h * D;
            const float *q = l->qkv + t * 3 * C + h * D, *k = l->qkv + C + h * D;

            for (int s = 0; s <= t; s++)
                weights[s] = dot(q, k + s * 3 * C, D) / sqrtf(D);
            softmax(weights, t + 1);
            for (int s = 0; s <= t; s++)
                for (int d = 0; d < D; d++)
                    out[d] += weights[s] * k[s * 3 * C + C + d];
        }
}

static void attend_back(float *dqkv, const float *dmixed, const struct layer *l)
{
    memset(dqkv, 0, sizeof l->qkv);
    for (int h = 0; h < H; h++)
        for (int t = 0; t < T; t++) {
            const float *weights = l->weights + (h * T + t) * T,
                        *dout = dmixed + t * C + h * D;
            const int q = t * 3 * C + h * D, k0 = C + h * D;
            float mean = 0;

            for (int s = 0; s <= t; s++)
                mean += weights[s] * dot(dout, l->qkv + k0 + s * 3 * C + C, D);
            for (int s = 0; s <= t; s++) {
                const int k = k0 + s * 3 * C, v = k + C;
                const float slope = weights[s] * (dot(dout, l->qkv + v, D) - mean) /
                                    sqrtf(D);

                for (int d = 0; d < D; d++) {
                    dqkv[q + d] += slope * l->qkv[k + d];
                    dqkv[k + d] += slope * l->qkv[q + d];
                    dqkv[v + d] += weights[s] * dout[d];
                }
            }
        }
}

/* x: the input of the layer, replaced by its output. */
static void forward_layer(struct layer *l, const struct gpt_param *w, float *x)
{
    memcpy(l->x, x, sizeof l->x);
    memset(l->qkv, 0, sizeof l->qkv);
    memset(l->up, 0, sizeof l->up);
    norm(l->norm1, x);
    linear(l->qkv, l->norm1, &w[QKV]);
    attend(l);
    linear(x, l->mixed, &w[MERGE]);
    memcpy(l->middle, x, sizeof l->middle);
    norm(l->norm2, x);
    linear(l->up, l->norm2, &w[UP]);
    for (int i = 0; i < T * F; i++)
        l->hidden[i] = l->up[i] > 0 ? l->up[i] * l->up[i] : 0;
    linear(x, l->hidden, &w[DOWN]);
}

float gpt_forward(const struct gpt *gpt, const unsigned char *tokens)
{
    float loss = 0;

    for (int i = 0; i < T * C; i++)
        last[i] = gpt->params[EMBED].value[tokens[i / C] * C + i % C] +
                  gpt->params[POSITION].value[i];
    for (int l = 0; l < GPT_LAYERS; l++)
        forward_layer(&layers[l], &gpt->params[LAYER + 4 * l], last);
    norm(last_norm, last);
    memset(chances, 0, sizeof chances);
    linear(chances, last_norm, &gpt->params[HEAD]);
    for (int t = 0; t < T; t++) {
        softmax(chances + t * V, V);
        loss -= logf(chances[t * V + tokens[t + 1]]);
    }
    return loss / T;
}

/* dx: the gradient of the layer's output, replaced by the gradient of its input. */
static void backward_layer(const struct layer *l, struct gpt_param *w, float *dx)
{
    static float dhidden[T * F], dnorm[T * C], dmixed[T * C], dqkv[T * 3 * C];

    linear_back(dhidden, dx, l->hidden, &w[DOWN]);
    for (int i = 0; i < T * F; i++)
        dhidden[i] *= l->up[i] > 0 ? 2 * l->up[i] : 0;
    linear_back(dnorm, dhidden, l->norm2, &w[UP]);
    norm_back(dx, dnorm, l->norm2, l->middle);
    linear_back(dmixed, dx, l->mixed, &w[MERGE]);
    attend_back(dqkv, dmixed, l);
    linear_back(dnorm, dqkv, l->norm1, &w[QKV]);
    norm_back(dx, dnorm, l->norm1, l->x);
}

void gpt_backward(struct gpt *gpt, const unsigned char *tokens, float scale,
                  void (*ready)(int p))
{
    static float dlogits[T * V], dnorm[T * C], dx[T * C];

    for (int i = 0; i < T * V; i++)
        dlogits[i] = (chances[i] - (float)(tokens[i / V + 1] == i % V)) * scale / T;
    linear_back(dnorm, dlogits, last_norm, &gpt->params[HEAD]);
    memset(dx, 0, sizeof dx);
    norm_back(dx, dnorm, last_norm, last);
    for (int p = HEAD; p >= EMBED; p--) {
        if (p >= LAYER && p < HEAD &&
            (p - LAYER) % 4 == DOWN) /* the first of its layer */
            backward_layer(&layers[(p - LAYER) / 4], &gpt->params[p - DOWN], dx);
        for (int i = 0; p == POSITION && i < T * C; i++) {
            gpt->params[EMBED].grad[tokens[i / C] * C + i % C] += dx[i];
            gpt->params[POSITION].grad[i] += dx[i];
        }
        if (ready)
            ready(p);
    }
}

int gpt_predict(int t)
{
    int best = 0;

    for (int i = 1; i < V; i++)
        if (chances[t * V + i] > chances[t * V + best])
            best = i;
    return best;
}
