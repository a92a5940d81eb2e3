/* SPDX-License-Identifier: Apache-2.0 */
/* A small GPT over bytes, in plain C: it knows nothing of other processes. Pre-norm blocks, learned positions,
 * RMS norm without weights, squared ReLU, no biases. */
#pragma once

#include <stddef.h>

enum {
    GPT_VOCAB = 256,
    GPT_CONTEXT = 64, /* tokens of a sequence */
    GPT_WIDTH = 64,
    GPT_HEADS = 4,
    GPT_LAYERS = 2,
    GPT_HIDDEN = 4 * GPT_WIDTH,
    /* The parameters: embedding, positions, then of each layer QKV, MERGE, UP and DOWN, then the head. */
    GPT_EMBED = 0,
    GPT_POSITION = 1,
    GPT_LAYER = 2, /* of layer l: GPT_LAYER + 4 * l + GPT_QKV, ... */
    GPT_QKV = 0,
    GPT_MERGE = 1,
    GPT_UP = 2,
    GPT_DOWN = 3,
    GPT_HEAD = GPT_LAYER + 4 * GPT_LAYERS,
    GPT_PARAMS
};

struct gpt {
    float *values[GPT_PARAMS]; /* (rows, columns), one behind the other in one array */
    float *grads[GPT_PARAMS];  /* likewise; where backward adds */
};

/* Of parameter p: its name, which is static, and its shape. */
const char *gpt_shape(int p, size_t *rows, size_t *columns);
/* The same values from the same seed everywhere. 0, or -ENOMEM. */
int gpt_create(struct gpt *gpt, unsigned seed);
void gpt_destroy(struct gpt *gpt);
/* The mean loss [nats a token] of predicting tokens[1..] from tokens[..GPT_CONTEXT]; GPT_CONTEXT + 1 of them. */
float gpt_forward(const struct gpt *gpt, const unsigned char *tokens);
/* Adds `scale` times the gradients of the last forward's loss. Calls ready(context, p), which may be NULL, when
 * p's is complete, and ends with what that returns where it is negative. */
int gpt_backward(struct gpt *gpt, const unsigned char *tokens, float scale,
                 int (*ready)(void *context, int p), void *context);
/* The byte that most likely follows position t of the last forward. */
int gpt_predict(int t);
