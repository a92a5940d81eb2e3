/* SPDX-License-Identifier: Apache-2.0 */
/* A small GPT over bytes, in plain C: it knows nothing of other processes. Pre-norm blocks, learned positions,
 * RMS norm without weights, squared ReLU, no biases. */
#pragma once

enum {
    GPT_VOCAB = 256,
    GPT_CONTEXT = 64, /* tokens of a sequence */
    GPT_WIDTH = 64,
    GPT_HEADS = 4,
    GPT_LAYERS = 2,
    GPT_PARAMS = 3 + 4 * GPT_LAYERS /* embedding, positions, four of each layer, head */
};

struct gpt_param {
    const char *name;
    int rows, columns;
    float *value, *grad; /* rows x columns; set by gpt_init() */
};
extern struct gpt_param gpt_params[GPT_PARAMS];

/* The same values from the same seed everywhere. */
void gpt_init(unsigned seed);
/* The mean loss [nats a token] of predicting tokens[1..] from tokens[..GPT_CONTEXT]; GPT_CONTEXT + 1 of them. */
float gpt_forward(const unsigned char *tokens);
/* Adds `scale` times the gradients of the last forward's loss. Calls ready(p), which may be NULL, when parameter
 * p's is complete. */
void gpt_backward(const unsigned char *tokens, float scale, void (*ready)(int p));
