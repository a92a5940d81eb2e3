/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/cnn/train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/backends.h"
#include "worker_sdk/cnn/optimizer.h"
#include "worker_sdk/cnn/report.h"
#include "worker_sdk/cnn/state.h"
#include "worker_sdk/cnn/zero.h"

/* Of one thread. tear_down() takes back whatever set_up() came to. */
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

/* What all ranks add up after every step: one small message tells the loss and who stops. */
enum {
    SUM_LOSS,
    SUM_COUNT,
    SUM_ASKED,
    SUM_TERMINATED,
    SUMS
};

/* ---- Setting up -------------------------------------------------------------------------- */

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
                       "%s: %zu images of %d x %d: the network takes 28 x 28",
                       directory, out->count, out->rows, out->columns);
    return 0;
}

static int set_up_engine(struct trainer *t, struct ctrun_error *err)
{
    /* How threads share the work may show in the bits, and so must not follow from the world. */
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

/* *from: the rank that has come furthest, the lowest among equals; -1: none has a state. Nodes
 * need not share a file system: only one of them may have the file. */
static int find_furthest(struct trainer *t, int64_t mine, int *from,
                         struct ctrun_error *err)
{
    int64_t *all = ct_zalloc_array((size_t)t->world_size, sizeof *all);
    int rc;

    if (!all)
        return ct_fail(err, -ENOMEM, "resume: out of memory");
    if ((rc = ctrun_all_gather(t->world, &mine, all, 1, CTRUN_I64, NULL, err)) < 0) {
        free(all);
        return ct_wrap(err, "compare checkpoints");
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
        return ct_wrap(err, "share the checkpoint");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
            if ((rc = ctrun_broadcast(t->world, parts[i]->of[p], parts[i]->of[p],
                                      cnn_params[p].count, CTRUN_F32, from, NULL,
                                      err)) < 0)
                return ct_wrap(err, "share the checkpoint");
    return 0;
}

static int check_position(const struct trainer *t, struct ctrun_error *err)
{
    const struct cnn_position *at = &t->position;

    if (at->seed != t->options->seed)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "%s: written with --seed %" PRIu64 ", not %" PRIu64
                       ": sample order and masks depend on it",
                       t->options->save, at->seed, t->options->seed);
    if (at->start > t->train.count)
        return ct_fail(err, CTRUN_E_BAD_CHECKPOINT,
                       "%s: written after %" PRIu64 " images of an epoch; %s has %zu",
                       t->options->save, at->start, t->options->data, t->train.count);
    return 0;
}

/* Gradients are averages over a step's samples: with more of them the same rate learns otherwise. */
static void note_batch(struct trainer *t)
{
    const uint64_t before = t->position.global_batch;

    if (before && before != t->global_batch)
        cnn_report_note(&t->report,
                        "warning: %s was written with %" PRIu64
                        " samples a step, this run has %" PRIu64
                        ", and the learning rate stays as it is: "
                        "--global-batch=%" PRIu64 " goes on as before",
                        t->options->save, before, t->global_batch, before);
}

static int resume(struct trainer *t, struct ctrun_error *err)
{
    int rc = cnn_state_load(t->options->save, &t->model, &t->position, err);
    int from = rc == 0 ? 0 : -1;

    if (rc < 0 && rc != -ENOENT)
        return rc;
    if (t->world) {
        /* A step of a damaged file may be anything; a negative one would mean that this rank has
         * none. */
        const int64_t mine = rc == 0 ? (int64_t)(t->position.step & INT64_MAX) : -1;

        if ((rc = find_furthest(t, mine, &from, err)) < 0 ||
            (from >= 0 && (rc = share_state(t, from, err)) < 0))
            return rc;
    }
    if (from < 0) {
        t->position = (struct cnn_position){.seed = t->options->seed};
        cnn_report_note(&t->report, "%s: not there yet: a new training",
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

/* DDP compares the ranks' parameters and gives them rank 0's, also where a fixed sum takes its place then. */
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

/* A group of its own: the thread that writes meets the other ranks while this one is in the
 * collectives of a step. */
static int set_up_shards(struct trainer *t, struct ctrun_error *err)
{
    struct ctrun_shards_options options = CTRUN_SHARDS_OPTIONS_INIT;
    int rc;

    if (!t->options->save_sharded)
        return 0;
    options.async = true;
    options.keep = t->options->keep;
    if (t->world &&
        (rc = ctrun_group_split(&t->savers, t->session, t->world, 0, NULL, err)) < 0)
        return rc;
    return ctrun_shards_open(&t->shards, t->options->save, t->savers, &options, err);
}

/* Data and engine before the group: what is wrong on this rank alone is reported as that, and not as
 * a lost peer. The state is shared before DDP is created, which compares shapes and options alone. */
static int set_up(struct trainer *t, struct ctrun_error *err)
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
    if ((rc = load_data(t, CTRUN_TRAIN, &t->train, err)) < 0 ||
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

static void tear_down(struct trainer *t)
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

/* ---- One step ---------------------------------------------------------------------------- */

/* The first parameter, in forward order, with an element that is not finite; CNN_PARAMS: none. */
static enum cnn_param find_broken(const struct cnn_tensors *tensors)
{
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
        for (uint32_t i = 0; i < cnn_params[p].count; i++)
            if (!isfinite(tensors->of[p][i]))
                return p;
    return CNN_PARAMS;
}

/* Which layer made that of finite parameters, by a forward in plain C. */
static const char *find_layer(struct trainer *t)
{
    const struct cnn_engine_options options = {.model = &t->model,
                                               .threads = 1,
                                               .seed = t->options->seed,
                                               .no_dropout = t->options->no_dropout};
    struct cnn_engine *engine = NULL;
    const char *layer = NULL;

    if (cnn_engine_open(&engine, "plain", &options, NULL) == 0 &&
        engine->backend->forward(engine, &t->batch, NULL) == 0)
        layer = cnn_plain_broken_layer(engine);
    cnn_engine_close(engine);
    return layer;
}

/* Says what is known of a model that is no longer worth training. */
static int fail_diverged(struct trainer *t, const char *what, struct ctrun_error *err)
{
    char where[120] = "no parameter does, so an activation overflowed";
    char kept[400] = "";
    const char *layer;
    enum cnn_param p;
    int rc;

    if ((rc = cnn_engine_pull(t->engine, err)) < 0)
        return rc;
    if ((p = find_broken(&t->model.values)) != CNN_PARAMS)
        (void)ct_format(where, sizeof where, "%s is the first parameter that does",
                        cnn_params[p].name);
    else if ((layer = find_layer(t)))
        (void)ct_format(where, sizeof where,
                        "no parameter does; the output of %s is the first that does",
                        layer);
    if (t->options->save && t->saved_step != UINT64_MAX)
        (void)ct_format(kept, sizeof kept, "%.300s still holds step %" PRIu64 "; ",
                        t->options->save, t->saved_step);
    return ct_fail(err, CTRUN_E_DIVERGED,
                   "after step %" PRIu64
                   ", rank %d: %s holds NaN or infinity (%s): the "
                   "training diverged; %slower --lr",
                   t->position.step, t->rank, what, where, kept);
}

static int check_loss(struct trainer *t, double loss, struct ctrun_error *err)
{
    return isfinite(loss) ? 0 : fail_diverged(t, "the loss", err);
}

/* Of the next n samples of all ranks those of one part of so many: every parts-th, beginning with that one. */
static void deal(struct trainer *t, const uint64_t *order, uint64_t n, uint64_t part,
                 uint64_t parts)
{
    t->batch = (struct cnn_batch){.data = &t->train,
                                  .indices = t->indices,
                                  .epoch = (uint32_t)t->position.epoch,
                                  .train = true,
                                  .scale = 1 / (float)n};
    for (uint64_t i = part; i < n; i += parts)
        t->indices[t->batch.count++] = order[i];
}

static int on_ready(void *context, enum cnn_param p, struct ctrun_error *err)
{
    struct trainer *t = context;

    return t->ddp ? ctrun_ddp_grad_ready(t->ddp, (size_t)p, NULL, err) : 0;
}

static int begin_ddp(struct trainer *t, struct ctrun_error *err)
{
    int rc = ctrun_ddp_forward_begin(t->ddp, err);

    /* asked for anew in each step: DDP moves the gradients when it rebuilds its buckets */
    for (enum cnn_param p = 0; p < CNN_PARAMS && rc >= 0; p++)
        t->grads[p] = ctrun_ddp_grad(t->ddp, (size_t)p);
    return rc;
}

static int forward(struct trainer *t, struct ctrun_error *err)
{
    const struct cnn_backend *backend = t->engine->backend;
    const int rc = backend->forward(t->engine, &t->batch, err);

    /* One that runs ahead does not know its loss yet: agree() asks. */
    return rc < 0 || backend->settle ? rc : check_loss(t, t->engine->sums.loss, err);
}

/* Forward, backward with the all-reduce inside. */
static int run_own_part(struct trainer *t, const uint64_t *order, uint64_t n,
                        struct ctrun_error *err)
{
    int rc;

    deal(t, order, n, (uint64_t)t->rank, (uint64_t)t->world_size);
    /* DDP divides the sum by W: with this each sample weighs 1 / n on any rank, also when
     * n is no multiple of W. */
    t->batch.scale = (float)t->world_size / (float)n;
    if ((t->ddp && (rc = begin_ddp(t, err)) < 0) || (rc = forward(t, err)) < 0 ||
        (t->ddp && (rc = ctrun_ddp_backward_begin(t->ddp, NULL, err)) < 0) ||
        (rc = t->engine->backend->backward(t->engine, t->grads, on_ready, t, err)) < 0)
        return rc;
    return t->ddp ? ctrun_ddp_backward_end(t->ddp, NULL, err) : 0;
}

static int run_virtual_parts(struct trainer *t, const uint64_t *order, uint64_t n,
                             struct ctrun_error *err)
{
    uint64_t first, end;
    int rc = 0;

    ctrun_fixed_sum_range(t->sum, &first, &end);
    for (uint64_t part = first; part < end && rc >= 0; part++) {
        deal(t, order, n, part, t->options->virtual_workers);
        if ((rc = forward(t, err)) < 0 ||
            (rc = t->engine->backend->backward(t->engine, t->grads, on_ready, t, err)) <
                0)
            return rc;
        rc = ctrun_fixed_sum_add(t->sum, t->own_grads.block, err);
    }
    return rc < 0 ? rc : ctrun_fixed_sum_finish(t->sum, t->own_grads.block, NULL, err);
}

/* `order` has the next n samples of all ranks. */
static int run_step(struct trainer *t, const uint64_t *order, uint64_t n, float lr,
                    struct ctrun_error *err)
{
    const int rc = t->sum ? run_virtual_parts(t, order, n, err)
                          : run_own_part(t, order, n, err);

    if (rc < 0)
        return rc;
    return t->zero ? cnn_zero_update(t->zero, t->engine, t->grads, lr, err)
                   : t->engine->backend->update(t->engine, t->grads, lr, err);
}

/* Adds up loss and wishes to stop over all ranks. Returns an outcome: CNN_DONE is "continue". */
static int agree(struct trainer *t, uint64_t step, struct ctrun_error *err)
{
    double sums[SUMS] = {0};
    struct cnn_sums local = {0};
    int rc;

    /* A back end that runs ahead (a GPU) is only asked when somebody wants to know. */
    if ((t->world || !t->engine->backend->settle ||
         cnn_report_is_due(&t->report, step)) &&
        ((rc = cnn_engine_take_sums(t->engine, &local, err)) < 0 ||
         (rc = check_loss(t, local.loss, err)) < 0))
        return rc;
    sums[SUM_LOSS] = local.loss;
    sums[SUM_COUNT] = (double)local.count;
    /* A signal may have reached some ranks only. What counts is the sum, which is the same on
     * all: so all save at the same step. */
    sums[SUM_ASKED] = ctrun_should_stop(t->session) || *t->terminated == SIGUSR1;
    sums[SUM_TERMINATED] = *t->terminated == SIGTERM;
    if (t->world && (rc = ctrun_all_reduce(t->world, sums, sums, SUMS, CTRUN_F64,
                                           CTRUN_SUM, NULL, err)) < 0)
        return rc;
    t->position.loss += sums[SUM_LOSS];
    if (t->report.out) {
        const double ms = (double)(ct_now_ms() - t->epoch_start_ms + 1);
        const struct cnn_progress at = {.epoch = t->position.epoch + 1,
                                        .step = step,
                                        .images_per_s = (double)t->epoch_images * 1000 /
                                                        ms};

        cnn_report_step(&t->report, &at, sums[SUM_LOSS], (uint64_t)sums[SUM_COUNT]);
    }
    if (sums[SUM_TERMINATED] > 0)
        return CNN_TERMINATED;
    return sums[SUM_ASKED] > 0 ? CNN_ASKED : CNN_DONE;
}

/* ---- Checkpoints, test, agreement -------------------------------------------------------- */

static int save(struct trainer *t, struct ctrun_error *err)
{
    const struct cnn_state_info info = {
        .lr = cnn_step_lr(t->options->lr, t->options->gamma, t->position.epoch),
        .world_size = t->world_size};
    int rc;

    if (!t->options->save || (t->rank != 0 && !t->shards && !t->zero) ||
        (t->saved_step == t->position.step && !t->has_moved))
        return 0;
    if ((rc = cnn_engine_pull(t->engine, err)) < 0)
        return rc;
    if (find_broken(&t->model.values) != CNN_PARAMS)
        return fail_diverged(t, "the model", err); /* the last good one stays */
    t->saved_step = t->position.step;
    t->has_moved = false;
    if (t->zero && (rc = cnn_zero_gather(t->zero, err)) < 0)
        return rc;
    if (t->rank == 0 || t->shards)
        rc = cnn_state_save(t->options->save, t->shards, &t->model, &t->position, &info,
                            err);
    if (t->zero)
        cnn_zero_drop(t->zero);
    return rc;
}

/* The digest of the parameters, after making sure that all ranks have the same. */
static int digest(struct trainer *t, uint64_t *out, struct ctrun_error *err)
{
    int64_t *all = NULL, mine;
    int rc;

    if ((rc = cnn_engine_pull(t->engine, err)) < 0)
        return rc;
    *out = cnn_digest(&t->model.values);
    if (!t->world)
        return 0;
    memcpy(&mine, out, sizeof mine);
    if (!(all = ct_zalloc_array((size_t)t->world_size, sizeof *all)))
        return ct_fail(err, -ENOMEM, "compare parameters: out of memory");
    rc = ctrun_all_gather(t->world, &mine, all, 1, CTRUN_I64, NULL, err);
    for (int r = 0; r < t->world_size && rc >= 0; r++)
        if (all[r] != mine)
            rc = ct_fail(err, CTRUN_E_MISMATCH,
                         "step %" PRIu64 ": the parameters of ranks %d and %d differ",
                         t->position.step, t->rank, r);
    free(all);
    return rc;
}

/* The share of the test set that is recognised; each rank tests its own range. */
static int test(struct trainer *t, double *accuracy, struct ctrun_error *err)
{
    const size_t n = t->test.count, room = t->options->test_batch_size;
    uint64_t *indices = ct_zalloc_array(room, sizeof *indices);
    struct cnn_sums sums = {0};
    double total[2];
    size_t first, end;
    int rc = indices ? 0 : ct_fail(err, -ENOMEM, "test: out of memory");

    cnn_team_split(n, t->rank, t->world_size, &first, &end);
    for (size_t at = first; at < end && rc >= 0; at += room) {
        struct cnn_batch batch = {.data = &t->test, .indices = indices};

        for (; batch.count < room && at + batch.count < end; batch.count++)
            indices[batch.count] = at + batch.count;
        rc = t->engine->backend->forward(t->engine, &batch, err);
    }
    if (rc >= 0)
        rc = cnn_engine_take_sums(t->engine, &sums, err);
    free(indices);
    total[0] = (double)sums.correct;
    total[1] = (double)sums.count;
    if (rc >= 0 && t->world)
        rc = ctrun_all_reduce(t->world, total, total, 2, CTRUN_F64, CTRUN_SUM, NULL,
                              err);
    *accuracy = rc >= 0 ? total[0] / total[1] : 0;
    return rc < 0 ? rc : 0;
}

/* ---- Epochs ------------------------------------------------------------------------------ */

static bool is_at_limit(const struct trainer *t)
{
    return t->options->limit_steps && t->position.step >= t->options->limit_steps;
}

static int run_epoch_steps(struct trainer *t, struct ctrun_error *err)
{
    const struct cnn_train_options *options = t->options;
    const float lr = (float)cnn_step_lr(options->lr, options->gamma, t->position.epoch);
    const uint64_t begin = t->position.start, left = t->train.count - begin;
    int outcome = CNN_DONE, rc;

    if ((rc = ctrun_sampler_set_epoch(t->sampler, t->position.epoch, begin, err)) < 0)
        return rc;
    t->report.steps = (t->train.count + t->global_batch - 1) / t->global_batch;
    for (uint64_t at = 0; at < left && outcome == CNN_DONE && !is_at_limit(t);) {
        const uint64_t n = left - at < t->global_batch ? left - at : t->global_batch;

        if ((rc = run_step(t, ctrun_sampler_indices(t->sampler) + at, n, lr, err)) < 0)
            return rc;
        at += n;
        t->position.start = begin + at;
        t->position.step++;
        t->epoch_images += n;
        ctrun_step(t->session, t->position.step);
        outcome = agree(t, (t->position.start + t->global_batch - 1) / t->global_batch,
                        err);
        if (outcome >= 0 && options->save_steps && at < left &&
            t->position.step % options->save_steps == 0 && (rc = save(t, err)) < 0)
            return rc;
    }
    return outcome;
}

/* Everything that follows the last step of an epoch. */
static int finish_epoch(struct trainer *t, struct ctrun_error *err)
{
    struct cnn_epoch_result result = {.epoch = t->position.epoch + 1};
    struct cnn_sums rest = {0};
    int rc;

    if ((rc = cnn_engine_take_sums(t->engine, &rest, err)) < 0 ||
        (rc = check_loss(t, rest.loss, err)) < 0)
        return rc;
    result.seconds = (double)(ct_now_ms() - t->epoch_start_ms) / 1000;
    result.images_per_s = result.seconds > 0 ? (double)t->epoch_images / result.seconds
                                             : 0;
    result.loss = (t->position.loss + rest.loss) / (double)t->train.count;
    if ((rc = test(t, &result.test_accuracy, err)) < 0 ||
        (rc = digest(t, &result.digest, err)) < 0)
        return rc;
    t->position.epoch++;
    t->position.start = 0;
    t->position.loss = 0;
    /* save() writes although the step is that of the last checkpoint: the position is another one */
    t->has_moved = true;
    if ((rc = save(t, err)) < 0)
        return rc;
    cnn_report_epoch(&t->report, &result);
    return 0;
}

static int stop(struct trainer *t, int outcome, struct ctrun_error *err)
{
    static const char *const why[] = {[CNN_DONE] = "the step limit is reached",
                                      [CNN_ASKED] = "asked to end",
                                      [CNN_TERMINATED] = "terminated by a signal"};
    uint64_t value;
    int rc;

    /* Saved first: the digest is a collective, which fails when a rank was killed meanwhile. */
    if ((rc = save(t, err)) < 0 || (rc = digest(t, &value, err)) < 0)
        return rc;
    cnn_report_stop(&t->report, why[outcome], t->position.step, value);
    return outcome;
}

/* Those that the last step used: averages over all ranks. */
static int dump_gradients(struct trainer *t, struct ctrun_error *err)
{
    const char *path = t->options->dump_gradients;

    if (!path || t->rank != 0)
        return 0;
    if (t->batch.data)
        return cnn_state_save_gradients(path, t->grads, t->position.step, err);
    cnn_report_note(&t->report, "%s: not written: this run made no step", path);
    return 0;
}

static int run_epochs(struct trainer *t, struct ctrun_error *err)
{
    int rc;

    while (t->position.epoch < t->options->epochs) {
        t->epoch_start_ms = ct_now_ms();
        t->epoch_images = 0;
        if ((rc = run_epoch_steps(t, err)) < 0)
            return rc;
        if (rc != CNN_DONE || (is_at_limit(t) && t->position.start < t->train.count))
            return stop(t, rc, err);
        if ((rc = finish_epoch(t, err)) < 0)
            return rc;
        if (is_at_limit(t))
            break;
    }
    return CNN_DONE;
}

int cnn_train(const struct cnn_train_options *options,
              const volatile sig_atomic_t *terminated, void (*on_set_up)(void),
              struct ctrun_error *err)
{
    struct trainer t = {.options = options,
                        .terminated = terminated,
                        .train = CTRUN_DATASET_INIT,
                        .test = CTRUN_DATASET_INIT};
    bool is_running = false;
    int after, rc = set_up(&t, err);

    if (rc >= 0) {
        is_running = true;
        on_set_up();
        rc = run_epochs(&t, err);
        if (rc >= 0 && ((after = dump_gradients(&t, err)) < 0 ||
                        (t.shards && (after = ctrun_shards_wait(t.shards, err)) < 0)))
            rc = after;
    }
    if (rc < 0 && *terminated && is_running && !t.shards && !t.zero) {
        /* Our peers were stopped a moment before us: the last whole step is still good. Shards, and a
         * state in shares, need all of them. */
        struct ctrun_error ignored;

        rc = save(&t, &ignored) < 0 ? rc : CNN_TERMINATED;
    }
    tear_down(&t);
    return rc;
}
