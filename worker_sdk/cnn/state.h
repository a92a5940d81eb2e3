/* SPDX-License-Identifier: Apache-2.0 */
/* What a training run must know to continue after a restart, and the file that holds it.
 *
 * The file is a safetensors file: the parameters under PyTorch's names and shapes (so that
 * PyTorch loads them), Adadelta's state beside them, and the position as text in the metadata.
 * The position counts samples of the epoch's global order, not batches of a rank: a run can be
 * resumed with another number of workers. */
#pragma once

#include "worker_sdk/cnn/net.h"
#include "worker_sdk/include/ctrun.h"

struct cnn_position {
    uint64_t seed;
    uint64_t epoch;        /* from 0 */
    uint64_t start;        /* samples of this epoch that are done, over all ranks */
    uint64_t step;         /* since the beginning of the training */
    double loss;           /* sum over these `start` samples */
    uint64_t global_batch; /* samples of a step; 0: the file does not tell */
};

struct cnn_state_info { /* written for readers; resume does not need it */
    double lr;          /* of this epoch */
    int world_size;
};

/* Whether a file can be written at path, found out without writing one. 0 or a negative errno. */
int cnn_state_check_place(const char *path, struct ctrun_error *err);
/* Writes path atomically; with shards, which may be NULL, the checkpoint of this step there, together with the
 * other ranks. 0, or a negative code. */
int cnn_state_save(const char *path, struct ctrun_shards *shards,
                   const struct cnn_model *model, const struct cnn_position *position,
                   const struct cnn_state_info *info, struct ctrun_error *err);
/* Allocates memory for the copies that these saves make (ctrun_shards_reserve()). */
int cnn_state_reserve(struct ctrun_shards *shards, struct ctrun_error *err);
/* Reads such a file, or the newest checkpoint of a folder. -ENOENT when there is none,
 * CTRUN_E_BAD_CHECKPOINT when it is damaged or of another network; model and position are
 * undefined then. */
int cnn_state_load(const char *path, struct cnn_model *model,
                   struct cnn_position *position, struct ctrun_error *err);
/* Reads only the parameters, of any file that has them, such as one of PyTorch. */
int cnn_state_load_values(const char *path, struct cnn_tensors *values,
                          struct ctrun_error *err);
/* Writes gradients under their parameters' names, and the step as metadata. */
int cnn_state_save_gradients(const char *path, float *const grads[CNN_PARAMS],
                             uint64_t step, struct ctrun_error *err);
