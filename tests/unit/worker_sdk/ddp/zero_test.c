/* SPDX-License-Identifier: Apache-2.0 */
/* ZeRO-1: which rank owns what, and a training that gives the same bits as one without shares. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/worlds.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/ddp/shares.h"

/* ---- Shares ------------------------------------------------------------------------------ */

static const size_t mnist[] = {288, 32, 18432, 64, 1179648, 128, 1280, 10};

TEST(whole_parameters_are_dealt_as_torch_deals_them)
{
    /* With 3 ranks: 1179648 | 18432 | 1280, then each of the rest to the rank with the least. */
    static const size_t owners[] = {2, 2, 1, 2, 0, 2, 2, 2};
    struct ct_shares shares;

    assert_int_equal(ct_shares_init(&shares, mnist, 8, 2, true, NULL), 0);
    assert_int_equal(shares.counts[0], 1179648);
    assert_int_equal(shares.counts[1], 20234);
    assert_int_equal(shares.first[1], 1);
    assert_int_equal(shares.pieces[0].param, 4);
    ct_shares_deinit(&shares);
    assert_int_equal(ct_shares_init(&shares, mnist, 8, 3, true, NULL), 0);
    for (size_t r = 0; r < 3; r++)
        for (size_t i = shares.first[r]; i < shares.first[r + 1]; i++)
            assert_int_equal(owners[shares.pieces[i].param], r);
    ct_shares_deinit(&shares);
}

enum deal {
    EVENLY,
    WHOLLY,
    BY_SLICES,
    BY_SHORT_SLICES, /* most elements are behind them */
    DEALS
};

/* Two rows with gaps: of the parameters with even and with odd numbers. */
static void cut(struct ct_cut cuts[5], const size_t *of, size_t slice)
{
    size_t ends[2] = {0, 3};

    for (size_t p = 0; p < 5; p++) {
        cuts[p] = (struct ct_cut){ends[p % 2], slice};
        ends[p % 2] += of[p] + 2;
    }
}

TEST(every_element_has_one_owner)
{
    static const size_t lists[][5] = {{7, 1, 12, 3, 5},
                                      {0, 0, 3, 0, 0},
                                      {1, 1, 1, 1, 1},
                                      {0, 0, 0, 0, 0},
                                      {64, 0, 1, 0, 9}};

    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        for (size_t ranks = 1; ranks <= 7; ranks++) {
            for (enum deal deal = EVENLY; deal < DEALS; deal++) {
                struct ct_cut cuts[5];
                uint8_t owned[5][64] = {{0}};
                size_t total = 0, at = 0;
                struct ct_shares shares;

                cut(cuts, lists[l], deal == BY_SHORT_SLICES ? 2 : 40 / ranks);
                assert_int_equal(ct_shares_init(&shares, lists[l], 5, ranks,
                                                deal == WHOLLY,
                                                deal < BY_SLICES ? NULL : cuts),
                                 0);
                for (size_t r = 0; r < ranks; r++) {
                    size_t count = 0;

                    assert_int_equal(shares.starts[r], at);
                    for (size_t i = shares.first[r]; i < shares.first[r + 1]; i++) {
                        const struct ct_piece *piece = &shares.pieces[i];

                        assert_true(piece->length > 0);
                        assert_true(piece->offset + piece->length <=
                                    lists[l][piece->param]);
                        for (size_t k = 0; k < piece->length; k++)
                            assert_int_equal(owned[piece->param][piece->offset + k]++,
                                             0);
                        count += piece->length;
                    }
                    assert_int_equal(count, shares.counts[r]);
                    at += count;
                }
                for (size_t p = 0; p < 5; p++)
                    total += lists[l][p];
                assert_int_equal(at, total);
                assert_int_equal(shares.total, total);
                if (deal == EVENLY)
                    assert_true(shares.counts[0] - shares.counts[ranks - 1] <=
                                (total + ranks - 1) / ranks);
                ct_shares_deinit(&shares);
            }
        }
    }
}

TEST(every_failing_allocation_is_survived)
{
    static const struct ct_cut no_cuts[8];
    struct ct_shares shares;
    size_t n = 1;

    for (;; n++) {
        ct_alloc_fail_at(n);
        if (ct_shares_init(&shares, mnist, 8, 3, n % 2, n % 3 ? NULL : no_cuts) == 0)
            break;
    }
    ct_alloc_fail_at(0);
    assert_int_equal(n, 6);
    ct_shares_deinit(&shares);
}

/* ---- Training ---------------------------------------------------------------------------- */

enum {
    PARAMS = 5, /* the third has no gradient */
    MOST = 97,
    STEPS = 30
};

static const size_t lengths[PARAMS] = {13, 97, 4, 1, 60};

enum way {
    PLAIN,
    WHOLE,
    EVEN,
    IN_ONE_ARRAY,
    BY_DDP, /* the pieces that DDP averages on this rank */
    WAYS
};

struct model {
    float values[PARAMS][MOST];
    float array[PARAMS * MOST];
    struct ctrun_param params[PARAMS];
    size_t count;
};

static void make_model(struct model *model, enum way way)
{
    static const char *const names[PARAMS] = {"a", "b", "c", "d", "e"};
    float *next = model->array;

    *model = (struct model){.count = 0};
    for (int p = 0; p < PARAMS; p++) {
        struct ctrun_param *param = &model->params[model->count];
        float *values = way == IN_ONE_ARRAY ? next : model->values[p];

        if (way == IN_ONE_ARRAY && p == 2)
            continue; /* it has no gradient */
        *param = (struct ctrun_param)CTRUN_PARAM_INIT;
        param->name = names[p];
        param->data = values;
        param->dims = 1;
        param->sizes[0] = (int64_t)lengths[p];
        param->no_grad = p == 2;
        for (size_t k = 0; k < lengths[p] && p != 2; k++)
            values[k] = sinf((float)(100 * p) + (float)k);
        next += lengths[p];
        model->count++;
    }
}

/* Adam's update of a piece, element by element. m and v are the state. */
static void update(float *value, const float *grad, float *m, float *v, size_t length)
{
    for (size_t k = 0; k < length; k++) {
        m[k] = 0.9f * m[k] + 0.1f * grad[k];
        v[k] = 0.999f * v[k] + 0.001f * grad[k] * grad[k];
        value[k] -= 0.01f * m[k] / (sqrtf(v[k]) + 1e-8f);
    }
}

struct trainer {
    struct model model;
    struct ctrun_ddp *ddp;
    struct ctrun_zero *zero; /* NULL: without ZeRO */
    float *m, *v;
};

static void open_trainer(struct trainer *t, struct ctrun_group *group, enum way way)
{
    struct ctrun_zero_options options = CTRUN_ZERO_OPTIONS_INIT;
    struct ctrun_ddp_options ddp = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_error err;
    size_t length = (size_t)PARAMS * MOST;

    *t = (struct trainer){.ddp = NULL};
    make_model(&t->model, way);
    ddp.first_bucket_bytes = ddp.bucket_cap_bytes = 100;
    ddp.shard_gradients = way == BY_DDP;
    CHECK_OK(
        ctrun_ddp_create(&t->ddp, group, t->model.params, t->model.count, &ddp, &err));
    options.whole_params = way == WHOLE;
    options.ddp = way == BY_DDP ? t->ddp : NULL;
    if (way != PLAIN) {
        CHECK_OK(ctrun_zero_create(&t->zero, group, t->model.params, t->model.count,
                                   &options, &err));
        CHECK(ctrun_zero_total(t->zero) == 13 + 97 + 1 + 60);
        length = ctrun_zero_length(t->zero);
        CHECK(ctrun_group_size(group) == 1 || length < ctrun_zero_total(t->zero));
    }
    t->m = calloc(length + 1, sizeof(float));
    t->v = calloc(length + 1, sizeof(float));
    CHECK(t->m && t->v);
}

static uint64_t close_trainer(struct trainer *t)
{
    uint64_t digest = CT_HASH_START;

    for (size_t p = 0; p < t->model.count; p++)
        digest = ct_hash_add(digest, t->model.params[p].data,
                             t->model.params[p].no_grad
                                 ? 0
                                 : (size_t)t->model.params[p].sizes[0] * sizeof(float));
    ctrun_zero_destroy(t->zero);
    ctrun_ddp_destroy(t->ddp);
    free(t->m);
    free(t->v);
    return digest;
}

/* After backward_end. A rank without data calls it, too, in a join. */
static int optimize(void *context, struct ctrun_error *err)
{
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;
    struct trainer *t = context;
    size_t at = 0;
    int rc;

    for (size_t p = 0; !t->zero && p < t->model.count; at += MOST, p++)
        if (!t->model.params[p].no_grad)
            update(t->model.params[p].data, ctrun_ddp_grad(t->ddp, p), t->m + at,
                   t->v + at, (size_t)t->model.params[p].sizes[0]);
    if (!t->zero)
        return 0;
    for (size_t i = 0; (rc = ctrun_zero_piece(t->zero, i, &piece, err)) > 0; i++)
        update((float *)t->model.params[piece.param].data + piece.offset,
               (float *)ctrun_ddp_grad(t->ddp, piece.param) + piece.offset,
               t->m + piece.state, t->v + piece.state, piece.length);
    return rc < 0 ? rc : ctrun_zero_share(t->zero, NULL, err);
}

static void train_step(struct trainer *t, int rank, int i)
{
    struct ctrun_error err;

    CHECK_OK(ctrun_ddp_forward_begin(t->ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(t->ddp, NULL, &err));
    for (size_t p = t->model.count; p-- > 0;) {
        const float *values = t->model.params[p].data;
        float *grad = ctrun_ddp_grad(t->ddp, p);

        if (t->model.params[p].no_grad)
            continue;
        for (int64_t k = 0; k < t->model.params[p].sizes[0]; k++)
            grad[k] = values[k] * values[k] +
                      cosf((float)(7 * rank + 3 * i) + (float)k);
        CHECK_OK(ctrun_ddp_grad_ready(t->ddp, p, NULL, &err));
    }
    CHECK_OK(ctrun_ddp_backward_end(t->ddp, NULL, &err));
    CHECK_OK(optimize(t, &err));
}

static void train_body(struct ctrun_group *group, void *context)
{
    const bool is_uneven = *(const bool *)context;
    const int rank = ctrun_group_rank(group);
    struct ctrun_join_options join = CTRUN_JOIN_OPTIONS_INIT;
    uint64_t digests[WAYS];
    struct ctrun_error err;
    struct trainer t;

    for (enum way way = PLAIN; way < WAYS; way++) {
        open_trainer(&t, group, way);
        join.on_step = optimize;
        join.context = &t;
        if (is_uneven)
            CHECK_OK(ctrun_ddp_join_begin(t.ddp, &join, &err));
        for (int i = 0; i < STEPS - (is_uneven ? 7 * rank : 0); i++)
            train_step(&t, rank, i);
        if (is_uneven)
            CHECK_OK(ctrun_ddp_join_end(t.ddp, &err));
        digests[way] = close_trainer(&t);
        CHECK(digests[way] == digests[PLAIN]);
    }
    CHECK(digests[PLAIN] != CT_HASH_START);
}

TEST(parameters_are_those_of_plain_ddp_to_the_bit)
{
    bool is_uneven = false;

    for (int ranks = 1; ranks <= 4; ranks++)
        worlds_run_with(ranks, train_body, &is_uneven);
}

TORCH_TEST(join_with_zero_updates_the_shares_of_those_without_data, "zero_join")
{
    bool is_uneven = true;

    worlds_run_with(3, train_body, &is_uneven);
}

/* ---- State ------------------------------------------------------------------------------- */

static void state_body(struct ctrun_group *group, void *context)
{
    const int rank = ctrun_group_rank(group), root = ctrun_group_size(group) - 1;
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;
    double whole[171], all[171] = {0}, *mine;
    struct ctrun_error err;
    size_t begins[PARAMS] = {0, 13, 110, 110, 111};

    for (int i = 0; i < 171; i++)
        whole[i] = i;
    for (enum way way = WHOLE; way < WAYS; way++) {
        struct trainer t;

        if (way == IN_ONE_ARRAY) /* no other pieces than those of EVEN */
            continue;
        open_trainer(&t, group, way);
        mine = calloc(ctrun_zero_length(t.zero) + 1, sizeof *mine);
        CHECK(mine);
        CHECK_OK(ctrun_zero_pick_state(t.zero, whole, mine, CTRUN_F64, &err));
        if (ctrun_zero_length(t.zero) > 0) {
            CHECK(ctrun_zero_pick_state(t.zero, NULL, mine, CTRUN_F64, &err) ==
                  -EINVAL);
            CHECK(ctrun_zero_pick_state(t.zero, whole, NULL, CTRUN_F64, &err) ==
                  -EINVAL);
            CHECK(ctrun_zero_gather_state(t.zero, mine, NULL, CTRUN_F64, rank, &err) ==
                  -EINVAL);
        }
        for (size_t i = 0; ctrun_zero_piece(t.zero, i, &piece, &err) > 0; i++)
            for (size_t k = 0; k < piece.length; k++)
                CHECK(mine[piece.state + k] ==
                      (double)(begins[piece.param] + piece.offset + k));
        CHECK_OK(ctrun_zero_gather_state(t.zero, mine, rank == root ? all : NULL,
                                         CTRUN_F64, root, &err));
        CHECK(rank != root || memcmp(all, whole, sizeof all) == 0);
        CHECK(ctrun_zero_gather_state(t.zero, mine, all, CTRUN_F64, -1, &err) ==
              -EINVAL);
        free(mine);
        close_trainer(&t);
    }
}

TEST(state_does_not_depend_on_the_number_of_ranks)
{
    for (int ranks = 1; ranks <= 4; ranks++)
        worlds_run_with(ranks, state_body, NULL);
}

/* ---- Misuse ------------------------------------------------------------------------------ */

WORLD_TEST(misuse_is_told, 2)
{
    struct ctrun_call_options call = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_zero_options options = CTRUN_ZERO_OPTIONS_INIT;
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;
    struct ctrun_work *work;
    struct ctrun_zero *zero;
    struct ctrun_ddp *ddp = NULL;
    struct ctrun_error err;
    struct model model;
    char text[100];
    int rc;

    make_model(&model, WHOLE);
    model.params[4].dtype = CTRUN_F64;
    CHECK(ctrun_zero_create(&zero, group, model.params, PARAMS, NULL, &err) ==
              CTRUN_E_UNSUPPORTED &&
          !zero);
    CHECK(strstr(err.text, "'e'"));
    CHECK(ctrun_zero_create(&zero, group, model.params + 2, 1, NULL, &err) ==
          CTRUN_E_USAGE);
    model.params[1].sizes[0] = -1;
    CHECK(ctrun_zero_create(&zero, group, model.params, 2, NULL, &err) == -EINVAL);
    model.params[1].sizes[0] = 97 - ctrun_group_rank(group);
    CHECK(ctrun_zero_create(&zero, group, model.params, 2, NULL, &err) ==
          CTRUN_E_MISMATCH);
    CHECK(strncmp(err.text, "zero: ZeRO expects", 18) == 0 && strstr(err.text, "'b'"));
    model.params[1].sizes[0] = 97;
    options.whole_params = ctrun_group_rank(group) == 1;
    CHECK(ctrun_zero_create(&zero, group, model.params, 2, &options, &err) ==
          CTRUN_E_MISMATCH);
    CHECK(strcmp(err.text,
                 "zero: the option whole_params is 0 on rank 0 and 1 on rank 1") == 0);
    rc = ctrun_group_rank(group) == 0
             ? ctrun_ddp_create(&ddp, group, model.params, 2, NULL, &err)
             : ctrun_zero_create(&zero, group, model.params, 2, NULL, &err);
    CHECK(rc == CTRUN_E_MISMATCH && !ddp && !zero);
    (void)ct_format(text, sizeof text,
                    "%s: rank 0 calls ctrun_ddp_create(), rank 1 ctrun_zero_create()",
                    ctrun_group_rank(group) == 0 ? "ddp" : "zero");
    CHECK(strcmp(err.text, text) == 0);
    CHECK_OK(ctrun_zero_create(&zero, group, model.params, 2, NULL, &err));
    call.work = &work;
    CHECK(ctrun_zero_share(zero, &call, &err) == CTRUN_E_UNSUPPORTED);
    piece.size = 1;
    CHECK(ctrun_zero_piece(zero, 0, &piece, &err) == -EINVAL);
    CHECK(ctrun_zero_piece(zero, 9, &piece, &err) == 0);
    ctrun_zero_destroy(zero);
    ctrun_zero_destroy(NULL);
}
