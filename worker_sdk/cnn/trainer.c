/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/cnn/trainer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"

static int load_data(struct trainer *t, enum ctrun_split split,
                     struct ctrun_dataset *out, struct ctrun_error *err)
{
    const char *directory = t->options->data;
    int rc;

    if ((rc = ctrun_dataset_load(out, directory, split, err)) < 0)
        return rc;
    if (out->rows != CNN_SIDE || out->columns != CNN_SIDE || out->count == 0 ||
        out->count > UINT32_MAX)
        return ct_fail(err, CTRUN_E_BAD_DATA,
                       "%s: %zu images of %d x %d: the network takes 1 to 2^32 - 1 "
                       "images of 28 x 28",
                       directory, out->count, out->rows, out->columns);
    return 0;
}

static int set_up_engine(struct trainer *t, struct ctrun_error *err)
{
    /* How threads share the work may change the bits, so it must not depend on the world. */
    const int cores = t->options->virtual_workers
                          ? 1
                          : cnn_team_usable_cores() /
                                ctrun_local_world_size(t->session);
    const int threads = t->options->threads ? (int)t->options->threads : cores;
    const struct cnn_engine_options options = {
        .model = &t->model,
        .threads = threads > 0 ? threads : 1,
        .seed = t->options->seed,
        .exchange = t->world_size > 1 || t->options->dump_gradients ||
                    t->options->virtual_workers > 0,
        .no_dropout = t->options->no_dropout,
        .device = ctrun_local_rank(t->session),
    };
    int rc;

    if (cnn_model_init(&t->model) < 0 || cnn_tensors_init(&t->own_grads) < 0)
        return ct_fail(err, -ENOMEM, "the network: out of memory");
    cnn_model_reset(&t->model, t->options->seed);
    memcpy(t->grads, t->own_grads.of, sizeof t->grads);
    if (t->options->init && t->rank == 0 && /* DDP gives it to the others */
        (rc = cnn_state_load_values(t->options->init, &t->model.values, err)) < 0)
        return rc;
    return cnn_engine_open(&t->engine, t->options->backend, &options, err);
}

static int set_up_batches(struct trainer *t, struct ctrun_error *err)
{
    const struct ctrun_sampler_options options = {.size = sizeof options,
                                                  .count = t->train.count,
                                                  .world_size = 1,
                                                  .seed = t->options->seed,
                                                  .no_shuffle = t->options->no_shuffle};
    const uint64_t world = t->options->virtual_workers ? t->options->virtual_workers
                                                       : (uint64_t)t->world_size;

    t->global_batch = t->options->global_batch ? t->options->global_batch
                                               : t->options->batch_size * world;
    t->indices = ct_zalloc_array((t->global_batch + world - 1) / world,
                                 sizeof *t->indices);
    if (!t->indices)
        return ct_fail(err, -ENOMEM, "a batch of %" PRIu64 ": out of memory",
                       t->global_batch);
    return ctrun_sampler_create(&t->sampler, &options, err);
}

/* *from: the rank with the most steps, the lowest among equals; -1: no rank has a state. Nodes
 * need not share a file system: perhaps only one node has the file. */
static int find_furthest(struct trainer *t, int64_t mine, int *from,
                         struct ctrun_error *err)
{
    int64_t *all = ct_zalloc_array((size_t)t->world_size, sizeof *all);
    int rc;

    if (!all)
        return ct_fail(err, -ENOMEM, "resume: out of memory");
    if ((rc = ctrun_all_gather(t->world, &mine, all, 1, CTRUN_I64, NULL, err)) < 0) {
        free(all);
        return ct_wrap(err, "compare checkpoints"), rc;
    }
    *from = -1;
    for (int r = 0; r < t->world_size; r++)
        if (all[r] >= 0 && (*from < 0 || all[r] > all[*from]))
            *from = r;
    free(all);
    return 0;
}

static int share_state(struct trainer *t, int from, struct ctrun_error *err)
{
    struct cnn_tensors *const parts[] = {&t->model.values, &t->model.square_avg,
                                         &t->model.acc_delta};
    int rc;

    if ((rc = ctrun_broadcast(t->world, &t->position, &t->position, sizeof t->position,
                              CTRUN_U8, from, NULL, err)) < 0)
        return ct_wrap(err, "share the checkpoint"), rc;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
            if ((rc = ctrun_broadcast(t->world, parts[i]->of[p], parts[i]->of[p],
                                      cnn_params[p].count, CTRUN_F32, from, NULL,
                                      err)) < 0)
                return ct_wrap(err, "share the checkpoint"), rc;
    return 0;
}

static int check_position(const struct trainer *t, struct ctrun_error *err)
{
    const struct cnn_position *at = &t->position;

    if (at->seed != t->options->seed)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "%s: written with --seed %" PRIu64 ", not %" PRIu64
                       ": sample order and dropout depend on it",
                       t->options->save, at->seed, t->options->seed);
    if (at->start > t->train.count)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "%s: written after %" PRIu64 " images of an epoch; %s has %zu",
                       t->options->save, at->start, t->options->data, t->train.count);
    return 0;
}

/* Warns when the global batch changed: gradients are averages over a step's samples, so the same
 * learning rate has another effect. */
static void note_batch(struct trainer *t)
{
    const uint64_t before = t->position.global_batch;

    if (before && before != t->global_batch)
        cnn_report_note(&t->report,
                        "warning: %s was written with %" PRIu64
                        " samples a step, this run has %" PRIu64
                        ", and the learning rate stays as it is: "
                        "give --global-batch=%" PRIu64 " to continue as before",
                        t->options->save, before, t->global_batch, before);
}

static int resume(struct trainer *t, struct ctrun_error *err)
{
    int rc = cnn_state_load(t->options->save, &t->model, &t->position, err);
    int from = rc == 0 ? 0 : -1;

    if (rc < 0 && rc != -ENOENT)
        return rc;
    if (t->world) {
        /* A damaged file may have any step; a negative one would mean: no state on this rank. */
        const int64_t mine = rc == 0 ? (int64_t)(t->position.step & INT64_MAX) : -1;

        if ((rc = find_furthest(t, mine, &from, err)) < 0 ||
            (from >= 0 && (rc = share_state(t, from, err)) < 0))
            return rc;
    }
    if (from < 0) {
        t->position = (struct cnn_position){.seed = t->options->seed};
        cnn_report_note(&t->report, "no checkpoint at %s yet: a new training begins",
                        t->options->save);
        return 0;
    }
    if ((rc = check_position(t, err)) < 0)
        return rc;
    note_batch(t);
    cnn_report_note(
        &t->report,
        "resumed from %s: epoch %" PRIu64 ", %" PRIu64 " images done, step %" PRIu64,
        t->options->save, t->position.epoch + 1, t->position.start, t->position.step);
    t->saved_step = t->position.step;
    return 0;
}

static void describe(const struct trainer *t, struct ctrun_param *params)
{
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        params[p] = (struct ctrun_param)CTRUN_PARAM_INIT;
        params[p].name = cnn_params[p].name;
        params[p].data = t->model.values.of[p];
        params[p].dims = cnn_params[p].dims;
        memcpy(params[p].sizes, cnn_params[p].sizes, sizeof cnn_params[p].sizes);
    }
}

/* DDP compares the ranks' parameters and sends rank 0's to all, also where a fixed sum replaces
 * DDP afterwards. */
static int set_up_exchange(struct trainer *t, struct ctrun_error *err)
{
    const struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    const uint64_t parts = t->options->virtual_workers;
    struct ctrun_param params[CNN_PARAMS];
    int rc = 0;

    if ((parts || t->options->zero) && t->engine->backend->pull)
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "--%s: not with --backend=%s",
                       parts ? "virtual-workers" : "zero", t->engine->backend->name);
    describe(t, params);
    if (t->world)
        rc = ctrun_ddp_create(&t->ddp, t->world, params, CNN_PARAMS, &options, err);
    if (rc == 0 && parts) {
        ctrun_ddp_destroy(t->ddp);
        t->ddp = NULL;
        rc = ctrun_fixed_sum_create(&t->sum, t->world, parts, cnn_tensors_length(),
                                    CTRUN_F32, err);
    }
    if (rc == 0 && t->options->zero && t->world)
        rc = cnn_zero_open(&t->zero, t->world, &t->model, params, err);
    return rc;
}

static void set_up_report(struct trainer *t)
{
    const struct cnn_train_options *options = t->options;

    if (t->rank != 0)
        return;
    t->report = (struct cnn_report){.out = stdout,
                                    .json = options->json,
                                    .bar = !options->json && isatty(STDERR_FILENO),
                                    .log_interval = options->log_interval,
                                    .epochs = options->epochs};
}

/* Shards get a group of their own: the writing thread calls collectives while this thread is in
 * those of a step. */
static int set_up_shards(struct trainer *t, struct ctrun_error *err)
{
    const struct ctrun_group_options host = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    int rc;

    if (!t->options->save_sharded)
        return 0;
    options.async = true;
    options.keep = t->options->keep;
    if (t->world &&
        (rc = ctrun_group_split(&t->savers, t->session, t->world, 0, &host, err)) < 0)
        return rc;
    rc = ctrun_shards_open(&t->shards, t->options->save, t->savers, &options, err);
    return rc < 0 ? rc : cnn_state_reserve(t->shards, err);
}

/* Else it would be found out after the training. */
static int check_places(const struct trainer *t, struct ctrun_error *err)
{
    const struct cnn_train_options *options = t->options;
    int rc = 0;

    if (t->rank == 0 && options->save && !options->save_sharded)
        rc = cnn_state_check_place(options->save, err);
    if (t->rank == 0 && options->dump_gradients && rc == 0)
        rc = cnn_state_check_place(options->dump_gradients, err);
    return rc;
}

/* Data and engine before the group: an error of this rank alone is reported as such, and not as a
 * lost peer. The state is shared before DDP is created, which compares shapes and options alone. */
int cnn_trainer_set_up(struct trainer *t, struct ctrun_error *err)
{
    struct ctrun_group_options group = CTRUN_GROUP_OPTIONS_INIT;
    int rc;

    group.backend = t->options->exchange;
    if ((rc = ctrun_open(&t->session, NULL, err)) < 0)
        return rc;
    t->rank = ctrun_rank(t->session);
    t->world_size = ctrun_world_size(t->session);
    t->position.seed = t->options->seed;
    t->saved_step = UINT64_MAX;
    set_up_report(t);
    if ((rc = check_places(t, err)) < 0 ||
        (rc = load_data(t, CTRUN_TRAIN, &t->train, err)) < 0 ||
        (rc = load_data(t, CTRUN_TEST, &t->test, err)) < 0 ||
        (rc = set_up_engine(t, err)) < 0 || (rc = set_up_batches(t, err)) < 0)
        return rc;
    if (t->world_size > 1 &&
        (rc = ctrun_group_open(&t->world, t->session, &group, err)) < 0)
        return rc;
    if ((rc = set_up_shards(t, err)) < 0 ||
        (t->options->resume && (rc = resume(t, err)) < 0))
        return rc;
    t->position.global_batch = t->global_batch;
    if ((rc = set_up_exchange(t, err)) < 0)
        return rc;
    return cnn_engine_push(t->engine, err);
}

void cnn_trainer_tear_down(struct trainer *t)
{
    ctrun_ddp_destroy(t->ddp);
    ctrun_fixed_sum_destroy(t->sum);
    cnn_zero_close(t->zero);
    ctrun_shards_close(t->shards);
    ctrun_group_close(t->savers);
    ctrun_group_close(t->world);
    cnn_engine_close(t->engine);
    ctrun_sampler_destroy(t->sampler);
    cnn_model_deinit(&t->model);
    cnn_tensors_deinit(&t->own_grads);
    ctrun_dataset_free(&t->train);
    ctrun_dataset_free(&t->test);
    free(t->indices);
    ctrun_close(t->session);
}
