/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/cnn/trainer.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/backends.h"
#include "worker_sdk/cnn/optimizer.h"

/* The numbers that all ranks add up after every step: one small message has the loss and the
 * requests to stop. */
enum {
    SUM_LOSS,
    SUM_COUNT,
    SUM_ASKED,
    SUM_TERMINATED,
    SUMS
};

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

/* Finds the layer that makes NaN or infinity of finite parameters, by a forward in plain C. */
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

/* Makes the batch of part `part` of `parts`: every parts-th of the next n samples of all ranks,
 * from index `part` on. */
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

    /* asked for in each step again: DDP moves the gradients when it rebuilds its buckets */
    for (enum cnn_param p = 0; p < CNN_PARAMS && rc >= 0; p++)
        t->grads[p] = ctrun_ddp_grad(t->ddp, (size_t)p);
    return rc;
}

static int forward(struct trainer *t, struct ctrun_error *err)
{
    const struct cnn_backend *backend = t->engine->backend;
    const int rc = backend->forward(t->engine, &t->batch, err);

    /* A back end that runs ahead does not know its loss yet: agree() asks for it. */
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

/* Adds up loss and requests to stop over all ranks. Returns an outcome: CNN_DONE is "continue". */
static int agree(struct trainer *t, uint64_t step, struct ctrun_error *err)
{
    double sums[SUMS] = {0};
    struct cnn_sums local = {0};
    int rc;

    /* A back end that runs ahead (a GPU) is only asked when the loss is needed. */
    if ((t->world || !t->engine->backend->settle ||
         cnn_report_is_due(&t->report, step)) &&
        ((rc = cnn_engine_take_sums(t->engine, &local, err)) < 0 ||
         (rc = check_loss(t, local.loss, err)) < 0))
        return rc;
    sums[SUM_LOSS] = local.loss;
    sums[SUM_COUNT] = (double)local.count;
    /* A signal may have reached some ranks only. The sum decides, which is the same on all ranks:
     * so all save at the same step. */
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

/* The accuracy on the test set; each rank tests its own range. */
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
    /* makes save() write although the step is that of the last checkpoint: the position has
     * changed */
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

/* Writes the gradients that the last step used: averages over all ranks. */
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
    int after, rc = cnn_trainer_set_up(&t, err);

    if (rc >= 0) {
        is_running = true;
        on_set_up();
        rc = run_epochs(&t, err);
        if (rc >= 0 && ((after = dump_gradients(&t, err)) < 0 ||
                        (t.shards && (after = ctrun_shards_wait(t.shards, err)) < 0)))
            rc = after;
    }
    if (rc < 0 && *terminated && is_running && !t.shards && !t.zero) {
        /* Our peers were stopped a moment before us: the state after the last whole step is still
         * valid. Shards, and an optimizer state in shares, need all ranks. */
        struct ctrun_error ignored;

        rc = save(&t, &ignored) < 0 ? rc : CNN_TERMINATED;
    }
    cnn_trainer_tear_down(&t);
    return rc;
}
