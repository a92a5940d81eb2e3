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
    char name[24];
    int rows, columns;
    float *value; /* those of all parameters are one array, in their order */
    float *grad;  /* likewise; where gpt_backward() adds */
};

struct gpt {
    struct gpt_param params[GPT_PARAMS];
};

/* The same values from the same seed everywhere. 0, or -ENOMEM. gpt_destroy() frees them. */
int gpt_create(struct gpt *gpt, unsigned seed);
void gpt_destroy(struct gpt *gpt);
/* The mean loss [nats a token] of predicting tokens[1..] from tokens[..GPT_CONTEXT]; GPT_CONTEXT + 1 of them. */
float gpt_forward(const struct gpt *gpt, const unsigned char *tokens);
/* Adds `scale` times the gradients of the last forward's loss; it keeps that of one sequence. Calls ready(p),
 * which may be NULL, when parameter p's is complete. */
void gpt_backward(struct gpt *gpt, const unsigned char *tokens, float scale,
                  void (*ready)(int p));
/* The byte that most likely follows position t of the last forward. */
int gpt_predict(int t);
