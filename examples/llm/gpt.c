/* SPDX-License-Identifier: Apache-2.0 */
#include "gpt.h"

#include <math.h>
#include <string.h>

enum {
    T = GPT_CONTEXT,
    C = GPT_WIDTH,
    V = GPT_VOCAB,
    H = GPT_HEADS,
    D = C / H,
    F = 4 * C,
    ALL = 2 * V * C + T * C + GPT_LAYERS * (4 * C * C + 2 * C * F),
    EMBED = 0, /* of the parameters */
    POSITION,
    LAYER,
    HEAD = GPT_PARAMS - 1,
    QKV = 0, /* of those of a layer */
    MERGE,
    UP,
    DOWN
};

struct gpt_param gpt_params[GPT_PARAMS] = {
    {.name = "embed", V, C},          {.name = "position", T, C},
    {.name = "layer0.qkv", 3 * C, C}, {.name = "layer0.merge", C, C},
    {.name = "layer0.up", F, C},      {.name = "layer0.down", C, F},
    {.name = "layer1.qkv", 3 * C, C}, {.name = "layer1.merge", C, C},
    {.name = "layer1.up", F, C},      {.name = "layer1.down", C, F},
    {.name = "head", V, C},
};
static float values[ALL], grads[ALL];

/* What a forward keeps for its backward. */
static struct layer {
    float x[T * C], norm1[T * C], qkv[T * 3 * C], weights[H * T * T], mixed[T * C];
    float middle[T * C], norm2[T * C], up[T * F], hidden[T * F];
} layers[GPT_LAYERS];
static float last[T * C], last_norm[T * C], chances[T * V];

void gpt_init(unsigned seed)
{
    for (int p = 0, used = 0; p < GPT_PARAMS; p++) {
        gpt_params[p].value = values + used;
        gpt_params[p].grad = grads + used;
        used += gpt_params[p].rows * gpt_params[p].columns;
    }
    for (int i = 0; i < ALL; i++) { /* even, of standard deviation 0.06 */
        seed = seed * 1664525 + 1013904223;
        values[i] = ((float)(seed >> 8) / 16777216 - 0.5f) * 0.2f;
    }
}

static float dot(const float *a, const float *b, int count)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* y += a x */
static void add(float *y, float a, const float *x, int count)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        y[i] += a * x[i];
}

/* out (T, rows) += in (T, columns) times w (rows, columns) transposed */
static void linear(float *out, const float *in, const struct gpt_param *w)
{
    for (int t = 0; t < T; t++)
        for (int r = 0; r < w->rows; r++)
            out[t * w->rows + r] += dot(in + t * w->columns, w->value + r * w->columns,
                                        w->columns);
}

/* din: the gradient of `in`, for that of `out`. w's gradient is added to it. */
static void linear_back(float *din, const float *dout, const float *in,
                        const struct gpt_param *w)
{
    const int n = w->columns;

    memset(din, 0, sizeof *din * (size_t)(T * n));
    for (int t = 0; t < T; t++)
        for (int r = 0; r < w->rows; r++) {
            add(din + t * n, dout[t * w->rows + r], w->value + r * n, n);
            add(w->grad + r * n, dout[t * w->rows + r], in + t * n, n);
        }
}

static float norm_scale(const float *x)
{
    return 1 / sqrtf(dot(x, x, C) / C + 1e-5f);
}

static void norm(float *y, const float *x)
{
    memset(y, 0, sizeof *y * T * C);
    for (int t = 0; t < T; t++)
        add(y + t * C, norm_scale(x + t * C), x + t * C, C);
}

/* Adds to dx: d(s x)/dx = s (1 - y y^T / C), where y = s x. */
static void norm_back(float *dx, const float *dy, const float *y, const float *x)
{
    for (int t = 0; t < T; t++, dx += C, dy += C, y += C, x += C) {
        add(dx, norm_scale(x), dy, C);
        add(dx, -norm_scale(x) * dot(dy, y, C) / C, y, C);
    }
}

/* Turns the first `count` of x into probabilities that add up to 1. */
static void softmax(float *x, int count)
{
    float top = x[0], sum = 0;

    for (int i = 1; i < count; i++)
        top = fmaxf(top, x[i]);
    for (int i = 0; i < count; i++)
        sum += x[i] = expf(x[i] - top);
    for (int i = 0; i < count; i++)
        x[i] /= sum;
}

/* Causal attention: each position t attends to itself and the positions s before it. */
static void attend(struct layer *l)
{
    memset(l->mixed, 0, sizeof l->mixed);
    for (int i = 0; i < H * T; i++) {
        const int h = i / T, t = i % T;
        const float *q = l->qkv + t * 3 * C + h * D, *k = l->qkv + C + h * D;
        float *weights = l->weights + i * T;

        for (int s = 0; s <= t; s++)
            weights[s] = dot(q, k + s * 3 * C, D) / sqrtf(D);
        softmax(weights, t + 1);
        for (int s = 0; s <= t; s++)
            add(l->mixed + t * C + h * D, weights[s], k + s * 3 * C + C, D);
    }
}

static void attend_back(float *dqkv, const float *dmixed, const struct layer *l)
{
    memset(dqkv, 0, sizeof l->qkv);
    for (int i = 0; i < H * T; i++) {
        const int h = i / T, t = i % T, q = t * 3 * C + h * D;
        const float *weights = l->weights + i * T, *dout = dmixed + t * C + h * D;
        const float mean = dot(dout, l->mixed + t * C + h * D, D);

        for (int s = 0; s <= t; s++) {
            const int k = s * 3 * C + C + h * D, v = k + C;
            const float slope = weights[s] * (dot(dout, l->qkv + v, D) - mean);

            add(dqkv + q, slope / sqrtf(D), l->qkv + k, D);
            add(dqkv + k, slope / sqrtf(D), l->qkv + q, D);
            add(dqkv + v, weights[s], dout, D);
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

float gpt_forward(const unsigned char *tokens)
{
    float loss = 0;

    for (int i = 0; i < T * C; i++)
        last[i] = gpt_params[EMBED].value[tokens[i / C] * C + i % C] +
                  gpt_params[POSITION].value[i];
    for (int l = 0; l < GPT_LAYERS; l++)
        forward_layer(&layers[l], &gpt_params[LAYER + 4 * l], last);
    norm(last_norm, last);
    memset(chances, 0, sizeof chances);
    linear(chances, last_norm, &gpt_params[HEAD]);
    for (int t = 0; t < T; t++) {
        softmax(chances + t * V, V);
        loss -= logf(chances[t * V + tokens[t + 1]]) / T;
    }
    return loss;
}

/* dx: the gradient of the layer's output, replaced by the gradient of its input. */
static void backward_layer(const struct layer *l, const struct gpt_param *w, float *dx)
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

void gpt_backward(const unsigned char *tokens, float scale, void (*ready)(int p))
{
    static float dlogits[T * V], dnorm[T * C], dx[T * C];

    for (int i = 0; i < T * V; i++)
        dlogits[i] = (chances[i] - (float)(tokens[i / V + 1] == i % V)) * scale / T;
    linear_back(dnorm, dlogits, last_norm, &gpt_params[HEAD]);
    memset(dx, 0, sizeof dx);
    norm_back(dx, dnorm, last_norm, last);
    for (int p = HEAD; p >= EMBED; p--) {
        if (p < HEAD && p >= LAYER && (p - LAYER) % 4 == DOWN) /* first of its layer */
            backward_layer(&layers[(p - LAYER) / 4], &gpt_params[p - DOWN], dx);
        if (p == POSITION)
            add(gpt_params[POSITION].grad, 1, dx, T * C);
        for (int t = 0; p == EMBED && t < T; t++)
            add(gpt_params[EMBED].grad + tokens[t] * C, 1, dx + t * C, C);
        if (ready)
            ready(p);
    }
}
