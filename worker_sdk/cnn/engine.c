/* SPDX-License-Identifier: Apache-2.0 */
/* The common part of all engines, and the optimizer of engines that compute on the host. */
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/backend.h"
#include "worker_sdk/cnn/optimizer.h"
#include "worker_sdk/cnn/random.h"

bool cnn_always_usable(char *why, size_t size)
{
    (void)ct_copy(why, size, "");
    return true;
}

int cnn_engine_init(struct cnn_engine *engine, const struct cnn_backend *backend,
                    const struct cnn_engine_options *options, struct ctrun_error *err)
{
    engine->backend = backend;
    engine->model = options->model;
    engine->seed = options->seed;
    engine->no_dropout = options->no_dropout;
    engine->scale1 = options->no_dropout ? 1.0f : CNN_SCALE1;
    engine->scale2 = options->no_dropout ? 1.0f : CNN_SCALE2;
    return cnn_team_create(&engine->team, options->threads, err);
}

void cnn_engine_deinit(struct cnn_engine *engine)
{
    cnn_team_destroy(engine->team);
    engine->team = NULL;
}

void cnn_engine_keep1(const struct cnn_engine *engine, const struct cnn_batch *batch,
                      size_t i, uint64_t *keep)
{
    if (engine->no_dropout)
        memset(keep, 0xff, CNN_KEEP1_WORDS * sizeof *keep);
    else
        cnn_dropout1(engine->seed, batch->epoch, (uint32_t)batch->indices[i], keep);
}

void cnn_engine_keep2(const struct cnn_engine *engine, const struct cnn_batch *batch,
                      size_t i, uint64_t *keep)
{
    if (engine->no_dropout)
        memset(keep, 0xff, CNN_KEEP2_WORDS * sizeof *keep);
    else
        cnn_dropout2(engine->seed, batch->epoch, (uint32_t)batch->indices[i], keep);
}

struct update {
    struct cnn_model *model;
    float *const *grads;
    float lr;
};

/* Each member takes its share of every parameter: fc1 is 98 % of them all. */
static void update_part(void *context, int index, int count)
{
    const struct update *update = context;

    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        size_t first, end;

        cnn_team_split(cnn_params[p].count, index, count, &first, &end);
        cnn_adadelta_step(
            &(struct cnn_adadelta){
                .value = update->model->values.of[p] + first,
                .grad = update->grads[p] + first,
                .square_avg = update->model->square_avg.of[p] + first,
                .acc_delta = update->model->acc_delta.of[p] + first,
            },
            end - first, update->lr);
    }
}

int cnn_engine_update(struct cnn_engine *engine, float *const grads[CNN_PARAMS],
                      float lr, struct ctrun_error *err)
{
    struct update update = {.model = engine->model, .grads = grads, .lr = lr};

    (void)err; /* nothing here can fail */
    cnn_team_run(engine->team, update_part, &update);
    return 0;
}
