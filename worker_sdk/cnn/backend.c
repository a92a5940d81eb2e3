/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses a back end, and calls functions that not every back end has. */
#include "worker_sdk/cnn/backend.h"

#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"

/* Lists the names into text, for messages; what does not fit is left out. */
static void list_names(char *text, size_t size)
{
    *text = '\0';
    for (size_t i = 0; cnn_backends[i]; i++)
        (void)ct_append(text, size, ", %s", cnn_backends[i]->name);
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
