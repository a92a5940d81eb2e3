/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing a back end, and what all of them share. */
#include "worker_sdk/cnn/backend.h"

#include <string.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/optimizer.h"

bool cnn_always_usable(char *why, size_t size)
{
    (void)ct_copy(why, size, "");
    return true;
}

/* Lists the names into text, for messages; what does not fit is left out. */
static void list_names(char *text, size_t size)
{
    size_t length = 0;

    (void)ct_copy(text, size, "");
    for (size_t i = 0; cnn_backends[i]; i++) {
        const int n = ct_format(text + length, size - length, ", %s",
                                cnn_backends[i]->name);

        if (n < 0)
            return;
        length += (size_t)n;
    }
}

int cnn_engine_open(struct cnn_engine **out, const char *name,
                    const struct cnn_engine_options *options, struct ctrun_error *err)
{
    char text[200];

    for (size_t i = 0; cnn_backends[i]; i++) {
        const struct cnn_backend *backend = cnn_backends[i];
        const bool is_auto = strcmp(name, "auto") == 0;

        if (!is_auto && strcmp(name, backend->name) != 0)
            continue;
        if (backend->is_usable(text, sizeof text))
            return backend->open(out, options, err);
        if (!is_auto)
            return ct_fail(err, CTRUN_E_UNSUPPORTED, "--backend %s: %s", name, text);
    }
    list_names(text, sizeof text);
    return ct_fail(err, CTRUN_E_UNSUPPORTED,
                   "--backend %s: not in this build, which has auto%s", name, text);
}

void cnn_engine_close(struct cnn_engine *engine)
{
    if (engine)
        engine->backend->close(engine);
}

int cnn_engine_push(struct cnn_engine *engine, struct ctrun_error *err)
{
    return engine->backend->push ? engine->backend->push(engine, err) : 0;
}

int cnn_engine_pull(struct cnn_engine *engine, struct ctrun_error *err)
{
    return engine->backend->pull ? engine->backend->pull(engine, err) : 0;
}

int cnn_engine_take_sums(struct cnn_engine *engine, struct cnn_sums *out,
                         struct ctrun_error *err)
{
    int rc = engine->backend->settle ? engine->backend->settle(engine, err) : 0;

    *out = engine->sums;
    engine->sums = (struct cnn_sums){0};
    return rc;
}

int cnn_engine_init(struct cnn_engine *engine, const struct cnn_backend *backend,
                    const struct cnn_engine_options *options, struct ctrun_error *err)
{
    engine->backend = backend;
    engine->model = options->model;
    engine->seed = options->seed;
    return cnn_team_create(&engine->team, options->threads, err);
}

void cnn_engine_deinit(struct cnn_engine *engine)
{
    cnn_team_destroy(engine->team);
    engine->team = NULL;
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
