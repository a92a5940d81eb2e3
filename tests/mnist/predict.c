/* SPDX-License-Identifier: Apache-2.0 */
/* usage: mnist_predict CHECKPOINT DATA COUNT BACKEND
 * Prints the log-probabilities of the first COUNT test images, one line an image. */
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/backend.h"
#include "worker_sdk/cnn/state.h"

static int predict(char **argv, uint64_t count, struct ctrun_error *err)
{
    struct ctrun_dataset data = CTRUN_DATASET_INIT;
    struct cnn_position position;
    struct cnn_model model;
    const struct cnn_engine_options options = {.model = &model, .threads = 1};
    uint64_t *indices = calloc(count, sizeof *indices);
    float *log_probs = calloc(count, CNN_CLASSES * sizeof *log_probs);
    struct cnn_batch batch = {
        .data = &data, .indices = indices, .count = count, .log_probs = log_probs};
    struct cnn_engine *engine = NULL;

    for (uint64_t i = 0; i < count; i++)
        indices[i] = i;
    if (cnn_model_init(&model) < 0 ||
        cnn_state_load(argv[1], &model, &position, err) < 0 ||
        ctrun_dataset_load(&data, argv[2], CTRUN_TEST, err) < 0 || data.count < count ||
        cnn_engine_open(&engine, argv[4], &options, err) < 0 ||
        cnn_engine_push(engine, err) < 0 ||
        engine->backend->forward(engine, &batch, err) < 0)
        return 1;
    for (uint64_t i = 0; i < count * CNN_CLASSES; i++)
        printf("%.9g%c", (double)log_probs[i],
               i % CNN_CLASSES == CNN_CLASSES - 1 ? '\n' : ' ');
    cnn_engine_close(engine);
    cnn_model_deinit(&model);
    ctrun_dataset_free(&data);
    free(indices);
    free(log_probs);
    return 0;
}

int main(int argc, char **argv)
{
    struct ctrun_error err = {0};
    uint64_t count;

    if (argc != 5 || ct_parse_u64(argv[3], 1, 10000, &count) < 0)
        return 2;
    if (predict(argv, count, &err) == 0)
        return 0;
    fprintf(stderr, "mnist_predict: %s\n", err.text);
    return 1;
}
