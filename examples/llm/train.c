/* SPDX-License-Identifier: Apache-2.0 */
/* Trains gpt.c on the bytes of a file: gradients averaged as bf16 while backward runs, AdamW with ZeRO-1, sharded
 * checkpoints that any number of workers continues with. 16 sequences make a step, however many workers there are.
 *
 *     cc -O3 -fopenmp-simd train.c gpt.c -o train $(pkg-config --cflags --libs ctrun) -lm
 *     ctrun --standalone --nproc-per-node=2 ./train TEXT STEPS [FOLDER [f32]] */
#include <ctrun.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "gpt.h"

enum {
    BATCH = 16, /* sequences of a step, over all ranks */
    SAVE_STEPS = 100,
    PRINT_STEPS = 10
};

static struct ctrun_error err;
static struct ctrun_session *session;
static struct ctrun_group *world;
static struct ctrun_ddp *ddp;
static struct ctrun_zero *zero;
static struct ctrun_shards *shards; /* NULL: nothing is saved */
static struct ctrun_sampler *sampler;
/* What a checkpoint holds on this rank: the parameters, and its share of the optimizer's state. */
static struct ctrun_tensor tensors[3 * GPT_PARAMS];
static char names[3 * GPT_PARAMS][32];
static size_t tensor_count;
static float *mean, *square; /* AdamW's, ctrun_zero_length() of each */
static const unsigned char *text;
static uint64_t sequences; /* of an epoch: whole steps of them */
static uint64_t step;

/* Ends this worker where a call has failed, and says why to the launcher. */
static void check(int rc)
{
    if (rc < 0)
        exit(ctrun_fail_worker(&err));
}

static _Noreturn void fail(int code, const char *format, ...)
{
    va_list words;

    va_start(words, format);
    vsnprintf(err.text, sizeof err.text, format, words);
    va_end(words);
    err.code = code;
    exit(ctrun_fail_worker(&err));
}

static void open_text(const char *path)
{
    const int fd = open(path, O_RDONLY);
    struct stat file = {0};

    if (fd < 0 || fstat(fd, &file) < 0)
        fail(CTRUN_E_BAD_DATA, "%s: %s", path, strerror(errno));
    sequences = (uint64_t)(file.st_size - 1) / GPT_CONTEXT / BATCH * BATCH;
    if (file.st_size <= BATCH * GPT_CONTEXT)
        fail(CTRUN_E_BAD_DATA, "%s: a text of %d bytes or more is needed", path,
             BATCH * GPT_CONTEXT + 1);
    text = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED)
        fail(CTRUN_E_BAD_DATA, "%s: %s", path, strerror(errno));
}

static void add_tensor(const char *kind, size_t p, float *data, size_t start,
                       size_t length)
{
    const struct gpt_param *param = &gpt_params[p];

    snprintf(names[tensor_count], sizeof *names, "%s%s", kind, param->name);
    tensors[tensor_count] = (struct ctrun_tensor){
        .size = sizeof *tensors,
        .name = names[tensor_count],
        .dtype = CTRUN_F32,
        .dims = 1,
        .data = data,
        .sizes = {(int64_t)length},
        .whole = {param->rows * param->columns},
        .starts = {(int64_t)start}};
    tensor_count++;
}

/* Up to 2^53. */
static int is_number(const char *word, uint64_t *out)
{
    if (!word || !*word || word[strspn(word, "0123456789")])
        return 0;
    *out = strtoull(word, NULL, 10); /* too large: 2^64 - 1 */
    return *out <= 1ULL << 53;
}

static void load(const char *folder)
{
    struct ctrun_checkpoint *checkpoint;
    const char *word;
    const int rc = ctrun_checkpoint_open(&checkpoint, folder, &err);

    if (rc == -ENOENT)
        return; /* the first start */
    check(rc);
    if (!is_number(word = ctrun_checkpoint_metadata(checkpoint, "step"), &step))
        fail(CTRUN_E_BAD_CHECKPOINT,
             "checkpoint: step '%s': a number up to 2^53 is needed", word ? word : "");
    for (size_t i = 0; i < tensor_count; i++)
        check(ctrun_checkpoint_load(checkpoint, &tensors[i], &err));
    ctrun_checkpoint_close(checkpoint);
}

static void save(void)
{
    char number[24];
    const struct ctrun_metadata metadata = {"step", number};

    snprintf(number, sizeof number, "%llu", (unsigned long long)step);
    check(ctrun_shards_save(shards, step, tensors, tensor_count, &metadata, 1, &err));
}

static void open_all(const char *folder, int is_f32)
{
    struct ctrun_ddp_options ddp_options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_sampler_options sampler_options = CTRUN_SAMPLER_OPTIONS_INIT;
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;
    struct ctrun_param params[GPT_PARAMS];

    for (size_t p = 0; p < GPT_PARAMS; p++) {
        const struct gpt_param *param = &gpt_params[p];

        params[p] = (struct ctrun_param){.size = sizeof *params,
                                         .name = param->name,
                                         .data = param->value,
                                         .grad = param->grad,
                                         .dtype = CTRUN_F32,
                                         .dims = 2,
                                         .sizes = {param->rows, param->columns}};
        add_tensor("", p, param->value, 0, (size_t)(param->rows * param->columns));
    }
    ddp_options.reduce_dtype = is_f32 ? CTRUN_F32 : CTRUN_BF16;
    sampler_options.count = sequences;
    sampler_options.rank = ctrun_rank(session);
    sampler_options.world_size = ctrun_world_size(session);
    check(ctrun_group_open(&world, session, NULL, &err));
    check(ctrun_ddp_create(&ddp, world, params, GPT_PARAMS, &ddp_options, &err));
    check(ctrun_zero_create(&zero, world, params, GPT_PARAMS, NULL, &err));
    check(ctrun_sampler_create(&sampler, &sampler_options, &err));
    if (!(mean = calloc(2 * ctrun_zero_length(zero) + 1, sizeof *mean)))
        fail(-ENOMEM, "no memory");
    square = mean + ctrun_zero_length(zero);
    for (size_t i = 0; ctrun_zero_piece(zero, i, &piece, NULL) > 0; i++) {
        add_tensor("mean.", piece.param, mean + piece.state, piece.offset,
                   piece.length);
        add_tensor("square.", piece.param, square + piece.state, piece.offset,
                   piece.length);
    }
    if (folder) {
        check(ctrun_shards_open(&shards, folder, world, NULL, &err));
        load(folder);
    }
}

static void set_ready(int p)
{
    check(ctrun_ddp_grad_ready(ddp, (size_t)p, NULL, &err));
}

/* Forward and backward of this rank's sequences of the step, gradients averaged. Returns their mean loss. */
static float find_gradients(void)
{
    const size_t count = BATCH / (size_t)ctrun_world_size(session);
    const size_t first = step % (sequences / BATCH) * count;
    float loss = 0;

    if (first == 0)
        check(ctrun_sampler_set_epoch(sampler, step * BATCH / sequences, 0, &err));
    check(ctrun_ddp_forward_begin(ddp, &err));
    check(ctrun_ddp_zero_grad(ddp, NULL, &err));
    check(ctrun_ddp_backward_begin(ddp, NULL, &err));
    for (size_t i = 0; i < count; i++) {
        const unsigned char *tokens = text + ctrun_sampler_index(sampler, first + i) *
                                                 GPT_CONTEXT;

        loss += gpt_forward(tokens) / (float)count;
        gpt_backward(tokens, 1 / (float)count, i + 1 == count ? set_ready : NULL);
    }
    check(ctrun_ddp_backward_end(ddp, NULL, &err));
    return loss;
}

/* AdamW (Loshchilov, Hutter: "Decoupled weight decay regularization", ICLR 2019) on our share. */
static void update(void)
{
    const float rate = 3e-3f, beta1 = 0.9f, beta2 = 0.99f, decay = 0.01f;
    const float fix1 = 1 - powf(beta1, (float)step + 1);
    const float fix2 = 1 - powf(beta2, (float)step + 1);
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;

    check(ctrun_ddp_clip_grad_norm(ddp, 1, NULL, &err));
    for (size_t i = 0; ctrun_zero_piece(zero, i, &piece, &err) > 0; i++) {
        float *value = gpt_params[piece.param].value + piece.offset;
        const float *grad = gpt_params[piece.param].grad + piece.offset;
        float *m = mean + piece.state, *s = square + piece.state;

        for (size_t k = 0; k < piece.length; k++) {
            m[k] += (1 - beta1) * (grad[k] - m[k]);
            s[k] += (1 - beta2) * (grad[k] * grad[k] - s[k]);
            value[k] -= rate * decay * value[k];
            value[k] -= rate * m[k] / fix1 / (sqrtf(s[k] / fix2) + 1e-8f);
        }
    }
    check(ctrun_zero_share(zero, NULL, &err));
}

/* The mean over all ranks. */
static void print_loss(float loss)
{
    check(ctrun_all_reduce(world, &loss, &loss, 1, CTRUN_F32, CTRUN_AVG, NULL, &err));
    if (ctrun_rank(session) == 0)
        printf("step %llu: loss %.5f\n", (unsigned long long)step, (double)loss);
    fflush(stdout);
}

static void train(uint64_t steps)
{
    int is_over = step >= steps;

    check(ctrun_sampler_set_epoch(sampler, step * BATCH / sequences, 0, &err));
    while (!is_over) {
        const float loss = find_gradients();

        update();
        ctrun_step(session, ++step);
        is_over = ctrun_should_stop(session) || step == steps;
        if (step % PRINT_STEPS == 0 || step == steps)
            print_loss(loss);
        if (shards && (step % SAVE_STEPS == 0 || is_over))
            save();
    }
}

int main(int argc, char **argv)
{
    uint64_t steps;

    if (argc < 3 || argc > 5 || !is_number(argv[2], &steps) ||
        (argc == 5 && strcmp(argv[4], "f32") != 0)) {
        fprintf(stderr, "usage: %s TEXT STEPS [FOLDER [f32]]\n", argv[0]);
        return 2;
    }
    gpt_init(1);
    check(ctrun_open(&session, NULL, &err));
    open_text(argv[1]);
    if (BATCH % ctrun_world_size(session))
        fail(CTRUN_E_USAGE, "%d workers: they cannot share %d sequences",
             ctrun_world_size(session), BATCH);
    open_all(argc > 3 ? argv[3] : NULL, argc > 4);
    train(steps);
    ctrun_shards_close(shards);
    ctrun_sampler_destroy(sampler);
    ctrun_zero_destroy(zero);
    ctrun_ddp_destroy(ddp);
    ctrun_group_close(world);
    free(mean);
    ctrun_close(session);
    return 0;
}
