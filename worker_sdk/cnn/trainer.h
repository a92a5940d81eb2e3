/* SPDX-License-Identifier: Apache-2.0 */
/* What a training run is made of: trainer.c sets it up and resumes it, train.c trains with it. */
#pragma once

#include "worker_sdk/cnn/report.h"
#include "worker_sdk/cnn/state.h"
#include "worker_sdk/cnn/train.h"
#include "worker_sdk/cnn/zero.h"

/* Used by one thread. cnn_trainer_tear_down() undoes all that cnn_trainer_set_up() did, also in
 * part. */
struct trainer {
    const struct cnn_train_options *options;
    const volatile sig_atomic_t *terminated;
    struct ctrun_session *session;
    struct ctrun_group *world;   /* NULL with one rank */
    struct ctrun_ddp *ddp;       /* likewise; or with virtual workers */
    struct ctrun_fixed_sum *sum; /* NULL: no virtual workers */
    struct cnn_zero *zero;       /* NULL: the model has all of its state */
    struct ctrun_group *savers;  /* likewise; for shards alone */
    struct ctrun_shards *shards; /* NULL: rank 0 saves one file */
    int rank, world_size;
    uint64_t global_batch;
    struct ctrun_dataset train, test;
    struct ctrun_sampler *sampler; /* the global order: of one rank out of one */
    struct cnn_model model;
    struct cnn_tensors own_grads; /* without ddp */
    float *grads[CNN_PARAMS];     /* of this step */
    struct cnn_batch batch;       /* likewise */
    struct cnn_engine *engine;
    struct cnn_position position;
    uint64_t saved_step; /* of the last checkpoint; UINT64_MAX: none yet */
    bool has_moved;      /* to the next epoch since then, without a step */
    uint64_t *indices;   /* of this rank in this step */
    struct cnn_report report;
    uint64_t epoch_start_ms; /* of what this process did of the epoch */
    uint64_t epoch_images;
};

/* Joins the run, loads the data, and resumes where its options say so. `t` is zeroed but for options and
 * terminated. 0 or a code; then cnn_trainer_tear_down() is still due. */
int cnn_trainer_set_up(struct trainer *t, struct ctrun_error *err);
void cnn_trainer_tear_down(struct trainer *t);
