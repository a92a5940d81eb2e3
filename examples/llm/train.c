/* SPDX-License-Identifier: Apache-2.0 */
/* Trains gpt.c on the bytes of a file: gradients averaged as bf16 while backward runs, AdamW with ZeRO-1, sharded
 * checkpoints that any number of workers continues with. 16 sequences make a step, however many workers there are.
 *
 *     cc -O3 -fopenmp-simd train.c gpt.c -o train $(pkg-config --cflags --libs ctrun) -lm
 *     ctrun --standalone --nproc-per-node=2 ./train TEXT STEPS [FOLDER [f32]] */
#include <ctrun.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpt.h"

enum {
    BATCH = 16, /* sequences of a step, over all ranks */
    SAVE_STEPS = 100,
    PRINT_STEPS = 10,
    TENSORS = 3 * GPT_PARAMS
};

struct trainer {
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_ddp *ddp;
    struct ctrun_zero *zero;
    struct ctrun_shards *shards; /* NULL: nothing is saved */
    struct ctrun_sampler *sampler;
    struct gpt gpt;
    struct ctrun_param params[GPT_PARAMS];
    struct ctrun_tensor tensors
        [TENSORS]; /* the parameters, and the optimizer's state of this rank's share */
    size_t tensor_count;
    char names[TENSORS][32];
    float *mean, *square; /* AdamW's, ctrun_zero_length() of each */
    unsigned char *text;
    size_t sequences; /* of an epoch: whole steps of them */
    uint64_t step, next_sample;
};

static int read_text(struct trainer *trainer, const char *path, struct ctrun_error *err)
{
    FILE *file = fopen(path, "rb");
    long bytes = -1;

    if (file && fseek(file, 0, SEEK_END) == 0)
        bytes = ftell(file);
    err->code = CTRUN_E_BAD_DATA;
    if (file)
        snprintf(err->text, sizeof err->text,
                 "%s: a text of %d bytes or more is needed", path,
                 BATCH * GPT_CONTEXT + 1);
    else
        snprintf(err->text, sizeof err->text, "%s: %s", path, strerror(errno));
    if (bytes > BATCH * GPT_CONTEXT && (trainer->text = malloc((size_t)bytes))) {
        rewind(file);
        trainer->sequences = (size_t)(bytes - 1) / GPT_CONTEXT / BATCH * BATCH;
        if (fread(trainer->text, 1, (size_t)bytes, file) == (size_t)bytes)
            err->code = 0;
    }
    if (file)
        fclose(file);
    return err->code;
}

static int no_memory(struct ctrun_error *err)
{
    snprintf(err->text, sizeof err->text, "no memory");
    return err->code = -ENOMEM;
}

static void add_tensor(struct trainer *trainer, const char *kind, int p, float *data,
                       int64_t offset, int64_t length)
{
    struct ctrun_tensor *tensor = &trainer->tensors[trainer->tensor_count];
    size_t rows, columns;
    const char *name = gpt_shape(p, &rows, &columns);

    snprintf(trainer->names[trainer->tensor_count], sizeof trainer->names[0], "%s%s",
             kind, name);
    *tensor = (struct ctrun_tensor){.size = sizeof *tensor,
                                    .name = trainer->names[trainer->tensor_count],
                                    .dtype = CTRUN_F32,
                                    .dims = 1,
                                    .data = data,
                                    .sizes = {length},
                                    .whole = {(int64_t)(rows * columns)},
                                    .starts = {offset}};
    trainer->tensor_count++;
}

/* What a checkpoint holds on this rank: all parameters, and the pieces of the state that ZeRO left here. */
static int list_tensors(struct trainer *trainer, struct ctrun_error *err)
{
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;

    trainer->mean = calloc(2 * ctrun_zero_length(trainer->zero) + 1, sizeof(float));
    if (!trainer->mean)
        return no_memory(err);
    trainer->square = trainer->mean + ctrun_zero_length(trainer->zero);
    for (int p = 0; p < GPT_PARAMS; p++)
        add_tensor(trainer, "", p, trainer->gpt.values[p], 0,
                   trainer->params[p].sizes[0] * trainer->params[p].sizes[1]);
    for (size_t i = 0; ctrun_zero_piece(trainer->zero, i, &piece, NULL) > 0; i++) {
        add_tensor(trainer, "mean.", (int)piece.param, trainer->mean + piece.state,
                   (int64_t)piece.offset, (int64_t)piece.length);
        add_tensor(trainer, "square.", (int)piece.param, trainer->square + piece.state,
                   (int64_t)piece.offset, (int64_t)piece.length);
    }
    return 0;
}

/* Steps go up to 2^53. */
static int is_number(const char *text, uint64_t *out)
{
    char *end;

    if (!text || *text < '0' || *text > '9')
        return 0;
    *out = strtoull(text, &end, 10); /* too large: 2^64 - 1 */
    return !*end && *out <= 1ULL << 53;
}

/* A number of the checkpoint's metadata. */
static int read_number(const struct ctrun_checkpoint *checkpoint, const char *key,
                       uint64_t *out, struct ctrun_error *err)
{
    const char *text = ctrun_checkpoint_metadata(checkpoint, key);

    if (is_number(text, out))
        return 0;
    snprintf(err->text, sizeof err->text,
             "checkpoint: %s '%s': a number up to 2^53 is needed", key,
             text ? text : "");
    return err->code = CTRUN_E_BAD_CHECKPOINT;
}

static int load(struct trainer *trainer, const char *folder, struct ctrun_error *err)
{
    struct ctrun_checkpoint *checkpoint;
    int rc = ctrun_checkpoint_open(&checkpoint, folder, err);

    if (rc < 0)
        return rc == -ENOENT ? 0 : rc; /* the first start */
    if ((rc = read_number(checkpoint, "step", &trainer->step, err)) == 0)
        rc = read_number(checkpoint, "next_sample", &trainer->next_sample, err);
    for (size_t i = 0; i < trainer->tensor_count && rc >= 0; i++)
        rc = ctrun_checkpoint_load(checkpoint, &trainer->tensors[i], err);
    ctrun_checkpoint_close(checkpoint);
    return rc;
}

static int save(struct trainer *trainer, struct ctrun_error *err)
{
    char step[24], next_sample[24];
    const struct ctrun_metadata metadata[] = {{"step", step},
                                              {"next_sample", next_sample}};

    snprintf(step, sizeof step, "%llu", (unsigned long long)trainer->step);
    snprintf(next_sample, sizeof next_sample, "%llu",
             (unsigned long long)trainer->next_sample);
    return ctrun_shards_save(trainer->shards, trainer->step, trainer->tensors,
                             trainer->tensor_count, metadata, 2, err);
}

static int open_all(struct trainer *trainer, const char *folder, bool is_f32,
                    struct ctrun_error *err)
{
    struct ctrun_ddp_options ddp = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_sampler_options sampler = CTRUN_SAMPLER_OPTIONS_INIT;
    int rc;

    for (int p = 0; p < GPT_PARAMS; p++) {
        size_t rows, columns;

        trainer->params[p] = (struct ctrun_param)CTRUN_PARAM_INIT;
        trainer->params[p].name = gpt_shape(p, &rows, &columns);
        trainer->params[p].data = trainer->gpt.values[p];
        trainer->params[p].grad = trainer->gpt.grads[p]; /* one array, as it is */
        trainer->params[p].dims = 2;
        trainer->params[p].sizes[0] = (int64_t)rows;
        trainer->params[p].sizes[1] = (int64_t)columns;
    }
    ddp.reduce_dtype = is_f32 ? CTRUN_F32 : CTRUN_BF16;
    /* Less is sent between hosts; in the memory of one a step is faster without. */
    ddp.shard_gradients = ctrun_world_size(trainer->session) >
                          ctrun_local_world_size(trainer->session);
    sampler.count = trainer->sequences;
    sampler.rank = ctrun_rank(trainer->session);
    sampler.world_size = ctrun_world_size(trainer->session);
    if (BATCH % sampler.world_size) {
        snprintf(err->text, sizeof err->text,
                 "%d workers: they cannot share %d sequences", sampler.world_size,
                 BATCH);
        return err->code = CTRUN_E_USAGE;
    }
    if ((rc = ctrun_group_open(&trainer->world, trainer->session, NULL, err)) < 0 ||
        (rc = ctrun_ddp_create(&trainer->ddp, trainer->world, trainer->params,
                               GPT_PARAMS, &ddp, err)) < 0 ||
        (rc = ctrun_zero_create(&trainer->zero, trainer->world, trainer->params,
                                GPT_PARAMS,
                                &(struct ctrun_zero_options){
                                    .size = sizeof(struct ctrun_zero_options),
                                    .ddp = ddp.shard_gradients ? trainer->ddp : NULL},
                                err)) < 0 ||
        (rc = ctrun_sampler_create(&trainer->sampler, &sampler, err)) < 0 ||
        (rc = list_tensors(trainer, err)) < 0)
        return rc;
    if (folder && ((rc = ctrun_shards_open(&trainer->shards, folder, trainer->world,
                                           NULL, err)) < 0 ||
                   (rc = load(trainer, folder, err)) < 0))
        return rc;
    return ctrun_sampler_set_epoch(trainer->sampler,
                                   trainer->next_sample / trainer->sequences,
                                   trainer->next_sample % trainer->sequences, err);
}

struct ready {
    struct ctrun_ddp *ddp;
    struct ctrun_error *err;
};

static int set_ready(void *context, int p)
{
    const struct ready *ready = context;

    return ctrun_ddp_grad_ready(ready->ddp, (size_t)p, NULL, ready->err);
}

/* This rank's sequences of one step: forward and backward of each. *loss: their mean. */
static int backward(struct trainer *trainer, size_t first, float *loss,
                    struct ctrun_error *err)
{
    const size_t count = BATCH / (size_t)ctrun_world_size(trainer->session);
    struct ready ready = {trainer->ddp, err};
    int rc;

    if ((rc = ctrun_ddp_forward_begin(trainer->ddp, err)) < 0 ||
        (rc = ctrun_ddp_zero_grad(trainer->ddp, NULL, err)) < 0 ||
        (rc = ctrun_ddp_backward_begin(trainer->ddp, NULL, err)) < 0)
        return rc;
    *loss = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *tokens = trainer->text +
                                      ctrun_sampler_index(trainer->sampler, first + i) *
                                          GPT_CONTEXT;

        *loss += gpt_forward(&trainer->gpt, tokens) / (float)count;
        rc = gpt_backward(&trainer->gpt, tokens, 1 / (float)count,
                          i + 1 == count ? set_ready : NULL, &ready);
    }
    return rc < 0 ? rc : ctrun_ddp_backward_end(trainer->ddp, NULL, err);
}

/* AdamW (Loshchilov, Hutter: "Decoupled weight decay regularization", ICLR 2019) on our share. */
static int update(struct trainer *trainer, struct ctrun_error *err)
{
    const float rate = 3e-3f, beta1 = 0.9f, beta2 = 0.99f, decay = 0.01f;
    const float fix1 = 1 - powf(beta1, (float)trainer->step + 1);
    const float fix2 = 1 - powf(beta2, (float)trainer->step + 1);
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;
    int rc = ctrun_ddp_clip_grad_norm(trainer->ddp, 1, NULL, err);

    for (size_t i = 0; rc >= 0 && ctrun_zero_piece(trainer->zero, i, &piece, err) > 0;
         i++) {
        float *value = trainer->gpt.values[piece.param] + piece.offset;
        const float *grad = trainer->gpt.grads[piece.param] + piece.offset;
        float *mean = trainer->mean + piece.state,
              *square = trainer->square + piece.state;

        for (size_t k = 0; k < piece.length; k++) {
            mean[k] = beta1 * mean[k] + (1 - beta1) * grad[k];
            square[k] = beta2 * square[k] + (1 - beta2) * grad[k] * grad[k];
            value[k] -= rate * (mean[k] / fix1 / (sqrtf(square[k] / fix2) + 1e-8f) +
                                decay * value[k]);
        }
    }
    return rc < 0 ? rc : ctrun_zero_share(trainer->zero, NULL, err);
}

static int print_loss(struct trainer *trainer, float loss, struct ctrun_error *err)
{
    int rc = ctrun_all_reduce(trainer->world, &loss, &loss, 1, CTRUN_F32, CTRUN_AVG,
                              NULL, err);

    if (rc >= 0 && ctrun_rank(trainer->session) == 0) {
        printf("step %llu: loss %.5f\n", (unsigned long long)trainer->step,
               (double)loss);
        fflush(stdout);
    }
    return rc;
}

static int train(struct trainer *trainer, uint64_t steps, struct ctrun_error *err)
{
    const size_t world = (size_t)ctrun_world_size(trainer->session);
    size_t began = trainer->next_sample %
                   trainer->sequences; /* where the sampler's epoch begins */
    int rc = 0;

    while (rc >= 0 && trainer->step < steps && !ctrun_should_stop(trainer->session)) {
        const size_t done = trainer->next_sample % trainer->sequences;
        float loss;

        if (done == 0 && trainer->next_sample > 0) {
            began = 0;
            rc = ctrun_sampler_set_epoch(
                trainer->sampler, trainer->next_sample / trainer->sequences, 0, err);
        }
        if (rc < 0 ||
            (rc = backward(trainer, (done - began) / world, &loss, err)) < 0 ||
            (rc = update(trainer, err)) < 0)
            break;
        ctrun_step(trainer->session, ++trainer->step);
        trainer->next_sample += BATCH;
        if (trainer->step % PRINT_STEPS == 0 || trainer->step == steps)
            rc = print_loss(trainer, loss, err);
        if (rc >= 0 && trainer->shards &&
            (trainer->step % SAVE_STEPS == 0 || trainer->step == steps))
            rc = save(trainer, err);
    }
    return rc;
}

/* Prints the beginning of the text and how the model continues it. */
static void write_some(const struct trainer *trainer)
{
    unsigned char tokens[GPT_CONTEXT + 1];

    memcpy(tokens, trainer->text, sizeof tokens);
    for (int i = 0; i < 64; i++) {
        gpt_forward(&trainer->gpt, tokens);
        memmove(tokens, tokens + 1, GPT_CONTEXT - 1);
        tokens[GPT_CONTEXT - 1] = (unsigned char)gpt_predict(GPT_CONTEXT - 1);
    }
    for (int i = 0; i < GPT_CONTEXT; i++)
        putchar(tokens[i] >= ' ' && tokens[i] < 127 ? tokens[i] : ' ');
    putchar('\n');
}

int main(int argc, char **argv)
{
    static struct trainer trainer;
    struct ctrun_error err = {-ENOMEM, "no memory for the model"};
    uint64_t steps;

    if (argc < 3 || argc > 5 || !is_number(argv[2], &steps) ||
        (argc == 5 && strcmp(argv[4], "f32") != 0)) {
        fprintf(stderr, "usage: %s TEXT STEPS [FOLDER [f32]]\n", argv[0]);
        return 2;
    }
    if (gpt_create(&trainer.gpt, 1) < 0 ||
        ctrun_open(&trainer.session, NULL, &err) < 0 ||
        read_text(&trainer, argv[1], &err) < 0 ||
        open_all(&trainer, argc > 3 ? argv[3] : NULL, argc > 4, &err) < 0 ||
        train(&trainer, steps, &err) < 0)
        return ctrun_fail_worker(&err);
    if (ctrun_rank(trainer.session) == 0)
        write_some(&trainer);
    ctrun_shards_close(trainer.shards);
    ctrun_sampler_destroy(trainer.sampler);
    ctrun_zero_destroy(trainer.zero);
    ctrun_ddp_destroy(trainer.ddp);
    ctrun_group_close(trainer.world);
    gpt_destroy(&trainer.gpt);
    free(trainer.mean);
    free(trainer.text);
    ctrun_close(trainer.session);
    return 0;
}
