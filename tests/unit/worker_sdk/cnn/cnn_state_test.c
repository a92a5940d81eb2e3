/* SPDX-License-Identifier: Apache-2.0 */
/* Generator, first values, optimizer, state file and options of the trainer. */
#include <errno.h>
#include <math.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/cnn/net.h"
#include "worker_sdk/cnn/optimizer.h"
#include "worker_sdk/cnn/options.h"
#include "worker_sdk/cnn/philox.h"
#include "worker_sdk/cnn/random.h"
#include "worker_sdk/cnn/state.h"

/* Random123's kat_vectors for philox4x32 with 10 rounds. */
TEST(philox_gives_the_published_vectors)
{
    static const struct {
        uint32_t counter[4];
        uint64_t key;
        uint32_t want[4];
    } cases[] = {
        {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         0x299f31d0a4093822,
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t got[4];

        const uint32_t *at = cases[i].counter;

        cnn_philox(at[0], at[1], at[2], at[3], cases[i].key, got);
        assert_memory_equal(got, cases[i].want, sizeof got);
    }
}

static size_t ones(const uint64_t *words, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += (size_t)__builtin_popcountll(words[i]);
    return count;
}

TEST(dropout_keeps_three_quarters_and_one_half)
{
    uint64_t keep1[CNN_KEEP1_WORDS], keep2[CNN_KEEP2_WORDS];
    size_t kept1 = 0, kept2 = 0;

    for (uint32_t sample = 0; sample < 200; sample++) {
        cnn_dropout1(1, 0, sample, keep1);
        cnn_dropout2(1, 0, sample, keep2);
        kept1 += ones(keep1, CNN_KEEP1_WORDS);
        kept2 += ones(keep2, CNN_KEEP2_WORDS);
    }
    /* Six standard deviations. The draws are fixed, so the result is always the same. */
    assert_true(fabs((double)kept1 / (200 * 9216) - 0.75) <
                6 * 0.433 / sqrt(200 * 9216));
    assert_true(fabs((double)kept2 / (200 * 128) - 0.5) < 6 * 0.5 / sqrt(200 * 128));
}

TEST(masks_differ_by_seed_epoch_and_sample_and_by_nothing_else)
{
    uint64_t a[CNN_KEEP1_WORDS], b[CNN_KEEP1_WORDS];

    cnn_dropout1(5, 2, 7, a);
    cnn_dropout1(5, 2, 7, b);
    assert_memory_equal(a, b, sizeof a);
    cnn_dropout1(6, 2, 7, b);
    assert_memory_not_equal(a, b, sizeof a);
    cnn_dropout1(5, 3, 7, b);
    assert_memory_not_equal(a, b, sizeof a);
    cnn_dropout1(5, 2, 8, b);
    assert_memory_not_equal(a, b, sizeof a);
}

TEST(first_values_are_uniform_within_pytorchs_bounds)
{
    struct cnn_model model, again;

    assert_int_equal(cnn_model_init(&model), 0);
    assert_int_equal(cnn_model_init(&again), 0);
    cnn_model_reset(&model, 1);
    cnn_model_reset(&again, 2);
    assert_true(cnn_digest(&model.values) != cnn_digest(&again.values));
    cnn_model_reset(&again, 1);
    assert_true(cnn_digest(&model.values) == cnn_digest(&again.values));
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        const double bound = 1 / sqrt(cnn_params[p].fan_in), n = cnn_params[p].count;
        double sum = 0, squares = 0, top = 0;

        for (uint32_t i = 0; i < cnn_params[p].count; i++) {
            const double v = (double)model.values.of[p][i];

            sum += v;
            squares += v * v;
            top = fabs(v) > top ? fabs(v) : top;
        }
        assert_true(top <= bound * (1 + 1e-6));
        assert_true(top >= bound * (1 - 10 / n));
        /* A uniform value in +-b has mean 0 and variance b^2 / 3. */
        assert_true(fabs(sum / n) < 6 * bound / sqrt(3 * n));
        assert_true(fabs(squares / n - bound * bound / 3) <
                    6 * bound * bound * 0.3 / sqrt(n));
    }
    cnn_model_deinit(&model);
    cnn_model_deinit(&again);
}

TEST(layouts_go_to_pytorch_and_back)
{
    struct cnn_model model, other;

    assert_int_equal(cnn_model_init(&model), 0);
    assert_int_equal(cnn_model_init(&other), 0);
    cnn_model_reset(&model, 1);
    for (enum cnn_param p = 0; p < CNN_PARAMS; p++) {
        cnn_to_torch(p, model.values.of[p], other.square_avg.of[p]);
        cnn_from_torch(p, other.square_avg.of[p], other.values.of[p]);
    }
    assert_true(cnn_digest(&model.values) == cnn_digest(&other.values));
    /* torch: (unit 3, channel 5, window 7) of (128, 64, 144); ours: (window, channel, unit) */
    assert_true(other.square_avg.of[CNN_FC1_W][(3 * 64 + 5) * 144 + 7] ==
                model.values.of[CNN_FC1_W][(7 * 64 + 5) * 128 + 3]);
    assert_true(other.square_avg.of[CNN_FC2_W][9 * 128 + 100] ==
                model.values.of[CNN_FC2_W][100 * 10 + 9]);
    cnn_model_deinit(&model);
    cnn_model_deinit(&other);
}

/* torch 1.13: Adadelta(lr=1), StepLR(gamma=0.7) stepped after the second update. */
TEST(adadelta_and_step_lr_give_torchs_numbers)
{
    static const float grads[4][5] = {{0.1f, -2.0f, 0.0f, 1e-4f, 30.0f},
                                      {0.2f, 1.0f, -3.0f, -1e-4f, -25.0f},
                                      {-0.3f, 0.5f, 1e-3f, 2e-4f, 0.0f},
                                      {0.1f, 0.1f, 0.1f, 0.1f, 0.1f}};
    static const float want[3][5] = {
        {0.494752437f, -1.24989986f, 2.00304818f, -0.00235850131f, 0.000778672111f},
        {0.013069001f, 0.396099955f, 0.730000079f, 0.00100000517f, 116.235992f},
        {4.61426225e-06f, 1.20672769e-06f, 8.12602082e-07f, 1.00980742e-06f,
         1.43459738e-06f}};
    float got[3][5] = {{0.5f, -1.25f, 2.0f, 0.0f, 1e-3f}};

    for (uint64_t i = 0; i < 4; i++)
        cnn_adadelta_step(&(struct cnn_adadelta){.value = got[0],
                                                 .grad = grads[i],
                                                 .square_avg = got[1],
                                                 .acc_delta = got[2]},
                          5, (float)cnn_step_lr(1.0, 0.7, i / 2));
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 5; i++)
            if (fabsf(got[k][i] - want[k][i]) > 1e-6f * fabsf(want[k][i]))
                fail_msg("%d %d: %.9g, torch has %.9g", k, i, (double)got[k][i],
                         (double)want[k][i]);
}

static void make_path(char *path, size_t size)
{
    char folder[] = "/tmp/cnn_state_XXXXXX";

    assert_non_null(mkdtemp(folder));
    assert_true(ct_format(path, size, "%s/state.safetensors", folder) > 0);
}

static void remove_path(char *path)
{
    unlink(path);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
}

TEST(a_state_comes_back_as_it_was_saved)
{
    const struct cnn_position want = {.seed = UINT64_MAX,
                                      .epoch = 3,
                                      .start = 6400,
                                      .step = 12345,
                                      .loss = 1.0 / 3,
                                      .global_batch = 96};
    struct cnn_position got;
    struct cnn_model model, other;
    struct ctrun_error err;
    char path[100];

    make_path(path, sizeof path);
    assert_int_equal(cnn_model_init(&model), 0);
    assert_int_equal(cnn_model_init(&other), 0);
    cnn_model_reset(&model, 1);
    model.square_avg.of[CNN_FC1_W][77] = 0.25f;
    model.acc_delta.of[CNN_FC2_B][9] = 0.5f;
    assert_int_equal(cnn_state_load(path, &other, &got, &err), -ENOENT);
    assert_int_equal(
        cnn_state_save(path, NULL, &model, &want,
                       &(struct cnn_state_info){.lr = 0.7, .world_size = 2}, &err),
        0);
    assert_int_equal(cnn_state_load(path, &other, &got, &err), 0);
    assert_memory_equal(&want, &got, sizeof want);
    assert_true(cnn_digest(&model.values) == cnn_digest(&other.values));
    assert_true(cnn_digest(&model.square_avg) == cnn_digest(&other.square_avg));
    assert_true(cnn_digest(&model.acc_delta) == cnn_digest(&other.acc_delta));
    cnn_model_deinit(&model);
    cnn_model_deinit(&other);
    remove_path(path);
}

TEST(a_file_of_something_else_is_no_state)
{
    float value = 1;
    const struct ctrun_tensor tensor = {.size = sizeof tensor,
                                        .name = "conv1.weight",
                                        .dtype = CTRUN_F32,
                                        .dims = 1,
                                        .sizes = {1},
                                        .data = &value};
    struct cnn_position position;
    struct cnn_model model;
    struct ctrun_error err;
    char path[100];

    make_path(path, sizeof path);
    assert_int_equal(cnn_model_init(&model), 0);
    assert_int_equal(ctrun_checkpoint_save(path, &tensor, 1, NULL, 0, &err), 0);
    assert_int_equal(cnn_state_load(path, &model, &position, &err),
                     CTRUN_E_BAD_CHECKPOINT);
    assert_non_null(strstr(err.text, path));
    cnn_model_deinit(&model);
    remove_path(path);
}

static int parse(struct cnn_train_options *out, struct ctrun_error *err, const char *a,
                 const char *b)
{
    char name[] = "ctrun-mnist", first[64], second[64];
    char *argv[] = {name, first, second, NULL};

    assert_int_equal(ct_copy(first, sizeof first, a), 0);
    assert_int_equal(ct_copy(second, sizeof second, b ? b : ""), 0);
    argv[b ? 3 : 2] = NULL;
    return cnn_options_parse(out, b ? 3 : 2, argv, err);
}

TEST(options_take_their_value_behind_a_blank_or_an_equal_sign)
{
    struct cnn_train_options o;

    assert_int_equal(parse(&o, NULL, "--epochs", "3"), 0);
    assert_int_equal(o.epochs, 3);
    assert_int_equal(o.batch_size, 64);
    assert_true(o.lr == 1.0 && o.gamma == 0.7);
    assert_int_equal(o.log_interval, 100);
    assert_int_equal(parse(&o, NULL, "--lr=0.01", "--json"), 0);
    assert_true(o.lr == 0.01);
    assert_true(o.json);
    assert_int_equal(o.log_interval, 0);
    assert_int_equal(parse(&o, NULL, "--help", NULL), 1);
    assert_int_equal(parse(&o, NULL, "--version", NULL), 2);
}

TEST(wrong_options_are_named_with_what_would_be_right)
{
    static const struct {
        const char *a, *b, *message;
    } cases[] = {
        {"--epochs", "ten", "--epochs ten"},
        {"--batch-size", "0", "--batch-size 0"},
        {"--lr", "nan", "--lr nan"},
        {"--lr", "-1", "--lr -1"},
        {"--batchsize", "3", "did you mean --batch-size?"},
        {"--epoch", "3", "did you mean --epochs?"},
        {"--wuppdi", NULL, "--help"},
        {"--seed", NULL, "missing"},
        {"--json=1", NULL, "takes no value"},
        {"stray", NULL, "unexpected argument"},
        {"--resume", NULL, "--save"},
        {"--save", "", "empty"},
    };
    struct cnn_train_options o;
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(&o, &err, cases[i].a, cases[i].b), CTRUN_E_USAGE);
        if (!strstr(err.text, cases[i].message))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].a, err.text,
                     cases[i].message);
    }
}
