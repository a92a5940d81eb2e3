/* SPDX-License-Identifier: Apache-2.0 */
/* Back ends of the network: plain C, own vector kernels, oneDNN, CUDA; one table each.
 *
 * An engine computes with one model. A training step is
 *
 *     forward(batch)                       // adds to engine->sums
 *     backward(grads, on_ready)            // overwrites grads, tells each one that is complete
 *     update(grads, lr)                    // Adadelta on the model
 *
 * and a test pass is forward() alone. When gradients are not exchanged (options.exchange is false)
 * a device does not write them to grads: grads are undefined then. grads are eight arrays in the
 * layout of net.h, in the order of `enum cnn_param`; on_ready is called in the order in which
 * PyTorch's autograd completes them: 7 6 5 4 2 3 0 1. An engine is used by one thread; it has a
 * team of its own. */
#pragma once

#include "worker_sdk/cnn/net.h"
#include "worker_sdk/cnn/team.h"
#include "worker_sdk/include/ctrun.h"

/* Pixels are (x / 255 - mean) / std, as in PyTorch's example. */
#define CNN_MEAN 0.1307f
#define CNN_STD  0.3081f

struct cnn_batch {
    const struct ctrun_dataset *data; /* borrowed until the engine is closed */
    const uint64_t *indices; /* which images; borrowed until backward() returns */
    size_t count;            /* may be 0: gradients are 0 then */
    uint32_t epoch;          /* with the index it keys the dropout masks */
    bool train;              /* dropout on, keep what backward() needs */
    float scale;             /* weight of one sample's loss in the gradient */
    float *log_probs;        /* NULL, or (count, 10) to be filled */
};

struct cnn_sums {
    double loss;      /* sum over samples, unscaled */
    uint64_t correct; /* largest log-probability at the label */
    uint64_t count;
};

typedef int cnn_ready_fn(void *context, enum cnn_param p, struct ctrun_error *err);

struct cnn_engine_options {
    struct cnn_model *model; /* kept; host memory */
    int threads;
    uint64_t seed;   /* of the dropout masks */
    bool exchange;   /* gradients are exchanged between backward() and update() */
    bool no_dropout; /* back ends of the host only */
    int device;      /* which accelerator: the rank on this host; modulo their number */
};

struct cnn_backend;

/* The first member of every engine. */
struct cnn_engine {
    const struct cnn_backend *backend;
    struct cnn_model *model;
    uint64_t seed;
    bool no_dropout;
    float scale1, scale2; /* what dropout multiplies kept values with */
    struct cnn_team *team;
    struct cnn_sums sums; /* read it with cnn_engine_take_sums() */
};

struct cnn_backend {
    const char *name;
    /* Whether this machine can run it; when not, why holds a few words. */
    bool (*is_usable)(char *why, size_t size);
    int (*open)(struct cnn_engine **out, const struct cnn_engine_options *options,
                struct ctrun_error *err);
    void (*close)(struct cnn_engine *engine);
    int (*forward)(struct cnn_engine *engine, const struct cnn_batch *batch,
                   struct ctrun_error *err);
    int (*backward)(struct cnn_engine *engine, float *const grads[CNN_PARAMS],
                    cnn_ready_fn *on_ready, void *context, struct ctrun_error *err);
    int (*update)(struct cnn_engine *engine, float *const grads[CNN_PARAMS], float lr,
                  struct ctrun_error *err);
    /* Only where the engine computes on a copy of the model (else NULL). push: the host's
     * model to the engine, after a load or broadcast; pull: back, before a save or digest;
     * settle: finish what still runs, so that engine->sums is complete. */
    int (*push)(struct cnn_engine *engine, struct ctrun_error *err);
    int (*pull)(struct cnn_engine *engine, struct ctrun_error *err);
    int (*settle)(struct cnn_engine *engine, struct ctrun_error *err);
};

/* All back ends of this build, best first; NULL at the end. */
extern const struct cnn_backend *const cnn_backends[];

/* Opens the named back end, or for "auto" the first usable one. CTRUN_E_UNSUPPORTED says why a
 * named one is not usable. */
int cnn_engine_open(struct cnn_engine **out, const char *name,
                    const struct cnn_engine_options *options, struct ctrun_error *err);
void cnn_engine_close(struct cnn_engine *engine);
int cnn_engine_push(struct cnn_engine *engine, struct ctrun_error *err);
int cnn_engine_pull(struct cnn_engine *engine, struct ctrun_error *err);
/* The sums since the last call. */
int cnn_engine_take_sums(struct cnn_engine *engine, struct cnn_sums *out,
                         struct ctrun_error *err);

/* For the back ends: fills what they share; deinit accepts a zeroed one. */
int cnn_engine_init(struct cnn_engine *engine, const struct cnn_backend *backend,
                    const struct cnn_engine_options *options, struct ctrun_error *err);
void cnn_engine_deinit(struct cnn_engine *engine);
/* The mask of dropout 1 (random.h) for the batch's i-th sample. */
void cnn_engine_keep1(const struct cnn_engine *engine, const struct cnn_batch *batch,
                      size_t i, uint64_t *keep);
void cnn_engine_keep2(const struct cnn_engine *engine, const struct cnn_batch *batch,
                      size_t i, uint64_t *keep);
/* Adadelta on the host's model with all threads: update() of the CPU back ends. */
int cnn_engine_update(struct cnn_engine *engine, float *const grads[CNN_PARAMS],
                      float lr, struct ctrun_error *err);
bool cnn_always_usable(char *why, size_t size);
