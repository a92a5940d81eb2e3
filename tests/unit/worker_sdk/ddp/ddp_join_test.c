/* SPDX-License-Identifier: Apache-2.0 */
/* Uneven inputs. Where torch 1.13 has numbers for the same story, they are torch's. The model is y
 * = a x + b x^2 with scalars a and b, so a's gradient is x and b's x^2. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/log.h"

enum {
    A,
    B,
    MEAN, /* a buffer */
    PARAMS
};

static float values[PARAMS];

static struct ctrun_ddp *make(struct ctrun_group *group,
                              const struct ctrun_ddp_options *options)
{
    static const char *const names[] = {"a", "b", "running_mean"};
    struct ctrun_param params[] = {CTRUN_PARAM_INIT, CTRUN_PARAM_INIT,
                                   CTRUN_PARAM_INIT};
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    for (int p = 0; p < PARAMS; p++) {
        params[p].name = names[p];
        params[p].data = &values[p];
    }
    params[MEAN].no_grad = params[MEAN].is_buffer = true;
    CHECK_OK(ctrun_ddp_create(&ddp, group, params, PARAMS, options, &err));
    return ddp;
}

static float grad(struct ctrun_ddp *ddp, size_t p)
{
    return *(float *)ctrun_ddp_grad(ddp, p);
}

static int forward(struct ctrun_ddp *ddp, struct ctrun_error *err)
{
    return ctrun_ddp_forward_begin(ddp, err);
}

static int backward(struct ctrun_ddp *ddp, float x, struct ctrun_error *err)
{
    const float grads[] = {x, x * x};
    int rc = ctrun_ddp_backward_begin(ddp, NULL, err);

    for (int p = B; rc == 0 && p >= A; p--) {
        *(float *)ctrun_ddp_grad(ddp, (size_t)p) = grads[p];
        rc = ctrun_ddp_grad_ready(ddp, (size_t)p, NULL, err);
    }
    return rc < 0 ? rc : ctrun_ddp_backward_end(ddp, NULL, err);
}

static void step(struct ctrun_ddp *ddp, float x)
{
    struct ctrun_error err;

    CHECK_OK(forward(ddp, &err));
    CHECK_OK(backward(ddp, x, &err));
}

static void update(float rate, struct ctrun_ddp *ddp)
{
    for (size_t p = A; p <= B; p++)
        values[p] -= rate * grad(ddp, p);
}

/* ---- torch's numbers --------------------------------------------------------------------- */

static void vectors_body(struct ctrun_group *group, void *context)
{
    struct ctrun_join_options options = CTRUN_JOIN_OPTIONS_INIT;
    struct ctrun_ddp *ddp = make(group, NULL);
    const bool is_first = ctrun_group_rank(group) == 0;
    struct ctrun_error err;

    options.divide_by_active = *(const bool *)context;
    CHECK_OK(ctrun_ddp_join_begin(ddp, &options, &err));
    step(ddp, is_first ? 1 : 3);
    CHECK(grad(ddp, A) == 2 && grad(ddp, B) == 5);
    if (is_first) {
        step(ddp, 2);
        CHECK(grad(ddp, A) == (options.divide_by_active ? 2 : 1));
        CHECK(grad(ddp, B) == (options.divide_by_active ? 4 : 2));
    }
    CHECK_OK(ctrun_ddp_join_end(ddp, &err));
    step(ddp, is_first ? 1 : 3); /* as without a join */
    CHECK(grad(ddp, A) == 2 && grad(ddp, B) == 5);
    ctrun_ddp_destroy(ddp);
}

TORCH_TEST(join_divides_by_all_ranks_or_by_those_with_data,
           "vector join, divide by initial world size; "
           "vector join, divide by the ranks still active; "
           "ddp_uneven_inputs")
{
    for (int i = 0; i < 2; i++) {
        bool by_active = i == 1;
        worlds_run_with(2, vectors_body, &by_active);
    }
}

TORCH_WORLD_TEST(join_may_end_with_the_first_rank_without_data, 3,
                 "vector join, throw_on_early_termination; "
                 "ddp_uneven_input_exception")
{
    struct ctrun_join_options options = CTRUN_JOIN_OPTIONS_INIT;
    struct ctrun_ddp *ddp = make(group, NULL);
    struct ctrun_error err;

    options.fail_early = true;
    CHECK_OK(ctrun_ddp_join_begin(ddp, &options, &err));
    step(ddp, 1);
    if (ctrun_group_rank(group) == 1) {
        CHECK(ctrun_ddp_join_end(ddp, &err) == CTRUN_E_MISMATCH);
        CHECK(strcmp(err.text, "Rank 1 exhausted all inputs.") == 0);
    } else {
        CHECK(forward(ddp, &err) == CTRUN_E_MISMATCH);
        CHECK(strstr(err.text, "Detected at least one rank that exhausted inputs. "
                               "Throwing across all ranks.") == err.text);
        CHECK(strstr(err.text, "rank 1"));
    }
    step(ddp, 2); /* the object can still be used */
    CHECK(grad(ddp, A) == 2);
    ctrun_ddp_destroy(ddp);
}

/* ---- Any numbers of steps ---------------------------------------------------------------- */

struct story {
    int steps[4];
    bool find_unused;
};

/* Rank r's gradient of a in step i. */
static float input(int rank, int i)
{
    return (float)((rank + 1) * (i + 1));
}

static float mean(const struct story *story, int ranks, int i)
{
    float sum = 0;

    for (int r = 0; r < ranks; r++)
        if (i < story->steps[r])
            sum += input(r, i);
    return sum / (float)ranks;
}

static void story_body(struct ctrun_group *group, void *context)
{
    const int rank = ctrun_group_rank(group), ranks = ctrun_group_size(group);
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_ddp_stats stats = CTRUN_DDP_STATS_INIT;
    const struct story *story = context;
    struct ctrun_error err;
    struct ctrun_ddp *ddp;
    int longest = 0;
    float want = 0;

    options.first_bucket_bytes = 4; /* two buckets after the rebuild */
    options.find_unused = story->find_unused;
    values[A] = values[MEAN] = 0;
    ddp = make(group, &options);
    for (int epoch = 0; epoch < 2; epoch++) {
        CHECK_OK(ctrun_ddp_join_begin(ddp, NULL, &err));
        for (int i = 0; i < story->steps[rank]; i++) {
            step(ddp, input(rank, i));
            CHECK(grad(ddp, A) == mean(story, ranks, i));
            update(1, ddp);
            values[MEAN] = (float)(100 * rank + i);
        }
        CHECK_OK(ctrun_ddp_join_end(ddp, &err));
        for (int r = 0; r < ranks; r++)
            longest = story->steps[r] >= story->steps[longest] ? r : longest;
        for (int i = 0; i < story->steps[longest]; i++)
            want -= mean(story, ranks, i);
        CHECK(values[A] == want); /* on all ranks, no matter which made the last step */
        CHECK(values[MEAN] == (float)(story->steps[longest]
                                          ? 100 * longest + story->steps[longest] - 1
                                          : 0));
    }
    CHECK_OK(ctrun_ddp_get_stats(ddp, &stats, &err));
    CHECK(stats.has_rebuilt_buckets ==
          (story->steps[longest] > 0 && !story->find_unused));
    ctrun_ddp_destroy(ddp);
}

TORCH_TEST(join_ends_with_the_model_of_the_last_rank_with_data,
           "ddp_join_model_equivalence; ddp_uneven_inputs_buffers")
{
    static const struct story stories[] = {
        {.steps = {3, 3, 3, 3}}, {.steps = {0, 0, 0, 0}}, {.steps = {5, 1, 0, 2}},
        {.steps = {0, 4, 4, 1}}, {.steps = {1, 2, 3, 9}}, {.steps = {0, 0, 1, 0}}};

    for (size_t s = 0; s < sizeof stories / sizeof *stories; s++) {
        for (int i = 0; i < 2; i++) {
            struct story story = stories[s];
            story.find_unused = i == 1;
            worlds_run_with(4, story_body, &story);
        }
    }
}

WORLD_TEST(join_takes_part_in_steps_that_synchronise, 2)
{
    const bool is_first = ctrun_group_rank(group) == 0;
    struct ctrun_ddp *ddp = make(group, NULL);
    struct ctrun_error err;

    CHECK_OK(ctrun_ddp_join_begin(ddp, NULL, &err));
    ctrun_ddp_no_sync(ddp, true);
    step(ddp, is_first ? 10 : 50);
    if (is_first) {
        step(ddp, 20); /* alone, and without synchronisation */
        CHECK(grad(ddp, A) == 20);
        ctrun_ddp_no_sync(ddp, false);
        step(ddp, 30);
        CHECK(grad(ddp, A) == 15); /* without the other's own gradient */
    }
    CHECK_OK(ctrun_ddp_join_end(ddp, &err));
    ctrun_ddp_no_sync(ddp, false);
    CHECK_OK(ctrun_ddp_join_begin(ddp, NULL, &err));
    ctrun_ddp_no_sync(ddp, is_first);
    CHECK(forward(ddp, &err) == CTRUN_E_MISMATCH);
    CHECK(strstr(err.text, "rank 1 synchronises") &&
          strstr(err.text, "rank 0 is under"));
    CHECK(ctrun_ddp_join_end(ddp, &err) == CTRUN_E_USAGE);
    ctrun_ddp_destroy(ddp);
}

static int count_step(void *context, struct ctrun_error *err)
{
    return ++*(int *)context == 3 ? -ECANCELED : 0;
}

WORLD_TEST(join_calls_back_after_each_step_of_the_others, 2)
{
    struct ctrun_join_options options = CTRUN_JOIN_OPTIONS_INIT;
    struct ctrun_ddp *ddp = make(group, NULL);
    struct ctrun_error err;
    int steps = 0;

    options.on_step = count_step;
    options.context = &steps;
    CHECK_OK(ctrun_ddp_join_begin(ddp, &options, &err));
    if (ctrun_group_rank(group) == 0) {
        for (int i = 0; i < 3; i++)
            step(ddp, 1);
        /* The other rank gave up, and left. */
        CHECK(forward(ddp, &err) == CTRUN_E_PEER_LOST);
        CHECK(ctrun_ddp_join_end(ddp, &err) == CTRUN_E_ABORTED);
    } else {
        CHECK(ctrun_ddp_join_end(ddp, &err) == -ECANCELED && steps == 3);
        CHECK(strstr(err.text, "on_step returned"));
        ctrun_group_close(group);
        _exit(0);
    }
    ctrun_ddp_destroy(ddp);
}

static void count_line(void *context, enum ctrun_log_level level, const char *line)
{
    ++*(int *)context;
    CHECK(level == CTRUN_LOG_WARN &&
          strstr(line, "joins the others rank=1 steps=1000"));
}

WORLD_TEST(join_warns_of_a_rank_that_is_long_without_data, 2)
{
    struct ctrun_ddp *ddp = make(group, NULL);
    struct ctrun_error err;
    int lines = 0;

    ct_log_set_sink(count_line, &lines, CTRUN_LOG_WARN);
    for (int steps = 999; steps <= 1000; steps++) {
        CHECK_OK(ctrun_ddp_join_begin(ddp, NULL, &err));
        for (int i = 0; i < steps && ctrun_group_rank(group) == 0; i++)
            step(ddp, 1);
        CHECK_OK(ctrun_ddp_join_end(ddp, &err));
    }
    CHECK(lines == ctrun_group_rank(group));
    ctrun_ddp_destroy(ddp);
}

/* The ranks with data may leave out a step, and go on. */
WORLD_TEST(join_stays_when_a_gradient_of_the_others_is_not_finite, 2)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_error err;
    struct ctrun_ddp *ddp;

    options.check_finite = true;
    ddp = make(group, &options);
    CHECK_OK(ctrun_ddp_join_begin(ddp, NULL, &err));
    if (ctrun_group_rank(group) == 0) {
        CHECK_OK(forward(ddp, &err));
        CHECK(backward(ddp, NAN, &err) == CTRUN_E_DIVERGED);
        step(ddp, 4);
        CHECK(grad(ddp, A) == 2);
    }
    CHECK_OK(ctrun_ddp_join_end(ddp, &err));
    ctrun_ddp_destroy(ddp);
}

WORLD_TEST(join_that_is_misused_is_told, 2)
{
    struct ctrun_join_options options = CTRUN_JOIN_OPTIONS_INIT;
    struct ctrun_ddp *ddp = make(group, NULL);
    struct ctrun_error err;

    CHECK(ctrun_ddp_join_end(ddp, &err) == CTRUN_E_USAGE);
    options.size = 1;
    CHECK(ctrun_ddp_join_begin(ddp, &options, &err) == -EINVAL);
    CHECK_OK(ctrun_ddp_join_begin(ddp, NULL, &err));
    CHECK(ctrun_ddp_join_begin(ddp, NULL, &err) == CTRUN_E_USAGE);
    CHECK_OK(forward(ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
    CHECK(ctrun_ddp_join_end(ddp, &err) == CTRUN_E_USAGE);
    /* A missing gradient on a rank: the ranks with data get an error, the others continue. */
    CHECK(ctrun_ddp_backward_end(ddp, NULL, &err) == CTRUN_E_USAGE);
    if (ctrun_group_rank(group) == 0) {
        CHECK_OK(forward(ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(ddp, NULL, &err));
        CHECK(ctrun_ddp_backward_end(ddp, NULL, &err) == CTRUN_E_USAGE);
        step(ddp, 4);
        CHECK(grad(ddp, A) == 2);
    }
    CHECK_OK(ctrun_ddp_join_end(ddp, &err));
    ctrun_ddp_destroy(ddp);
}
