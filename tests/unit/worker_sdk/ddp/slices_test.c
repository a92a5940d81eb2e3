/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients that are averaged on their owners alone (shard_gradients): a training gives the bits of
 * plain DDP, and sends as much. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/half.h"
#include "worker_sdk/base/hash.h"
#include "worker_sdk/client/flight.h"
#include "worker_sdk/wire/flight.h"

enum {
    PARAMS = 5,
    MOST = 1000,
    ALL = 13 + 97 + 1 + MOST + 60,
    STEPS = 6
};

static const size_t lengths[PARAMS] = {13, 97, 1, MOST, 60};

struct how {
    enum ctrun_dtype dtype; /* F32, or BF16, whose bits are 0 in an array of floats */
    struct ctrun_ddp_options ddp;
    int micros;    /* backwards a step; all but the last under no_sync */
    bool is_own;   /* gradients in one array of ours */
    bool is_plain; /* a step without momentum */
    double max_norm;
};

struct trainer {
    struct how how;
    struct ctrun_ddp *ddp;
    struct ctrun_zero *zero; /* NULL: every rank updates all */
    struct ctrun_param params[PARAMS];
    uint8_t values[PARAMS][MOST * 4];
    uint8_t grads[ALL * 4];
    float momentum[ALL];
    double norm; /* before the last clipping */
};

static size_t width(const struct trainer *t)
{
    return ctrun_dtype_size(t->how.dtype);
}

static float get(const struct trainer *t, const void *at, size_t i)
{
    return t->how.dtype == CTRUN_F32 ? ((const float *)at)[i]
                                     : ct_float_of_bf16(((const uint16_t *)at)[i]);
}

static void put(const struct trainer *t, void *at, size_t i, float value)
{
    if (t->how.dtype == CTRUN_F32)
        ((float *)at)[i] = value;
    else
        ((uint16_t *)at)[i] = ct_bf16_of_float(value);
}

static void open_trainer(struct trainer *t, struct ctrun_group *group,
                         const struct how *how)
{
    static const char *const names[PARAMS] = {"a", "b", "c", "d", "e"};
    struct ctrun_zero_options options = CTRUN_ZERO_OPTIONS_INIT;
    struct ctrun_error err;
    size_t at = 0;

    *t = (struct trainer){.how = *how};
    for (int p = 0; p < PARAMS; at += lengths[p++]) {
        t->params[p] = (struct ctrun_param)CTRUN_PARAM_INIT;
        t->params[p].name = names[p];
        t->params[p].data = t->values[p];
        t->params[p].dtype = how->dtype;
        t->params[p].dims = 1;
        t->params[p].sizes[0] = (int64_t)lengths[p];
        if (how->is_own)
            t->params[p].grad = t->grads + at * width(t);
        for (size_t k = 0; k < lengths[p]; k++)
            put(t, t->values[p], k, sinf((float)(100 * p) + (float)k));
    }
    t->how.ddp.first_bucket_bytes = 256; /* several buckets */
    t->how.ddp.bucket_cap_bytes = 1024;
    CHECK_OK(ctrun_ddp_create(&t->ddp, group, t->params, PARAMS, &t->how.ddp, &err));
    if (!how->ddp.shard_gradients)
        return;
    options.ddp = t->ddp;
    CHECK_OK(ctrun_zero_create(&t->zero, group, t->params, PARAMS, &options, &err));
}

static uint64_t close_trainer(struct trainer *t)
{
    uint64_t digest = ct_hash(t->values, sizeof t->values);

    ctrun_zero_destroy(t->zero);
    ctrun_ddp_destroy(t->ddp);
    return digest;
}

static void update(struct trainer *t, size_t p, size_t offset, size_t length,
                   float *momentum)
{
    const void *grad = ctrun_ddp_grad(t->ddp, p);

    if (!ctrun_ddp_grad_is_used(t->ddp, p))
        return;
    for (size_t k = offset; k < offset + length; k++, momentum++) {
        *momentum = (t->how.is_plain ? 0 : 0.9f) * *momentum + get(t, grad, k);
        put(t, t->values[p], k, get(t, t->values[p], k) - 0.05f * *momentum);
    }
}

static void update_all(struct trainer *t)
{
    struct ctrun_zero_piece piece = CTRUN_ZERO_PIECE_INIT;
    struct ctrun_error err;
    size_t at = 0;

    for (size_t p = 0; !t->zero && p < PARAMS; at += lengths[p++])
        update(t, p, 0, lengths[p], t->momentum + at);
    if (!t->zero)
        return;
    for (size_t i = 0; ctrun_zero_piece(t->zero, i, &piece, &err) > 0; i++)
        update(t, piece.param, piece.offset, piece.length, t->momentum + piece.state);
    CHECK_OK(ctrun_zero_share(t->zero, NULL, &err));
}

/* Parameter 1 is left out on rank 0, and 2 on all ranks: with static_graph always. */
static void choose_used(const struct trainer *t, int rank, int step, uint8_t *used)
{
    memset(used, 1, PARAMS);
    if (!t->how.ddp.find_unused && !t->how.ddp.static_graph)
        return;
    used[1] = rank != 0;
    used[2] = !t->how.ddp.static_graph && step % 2;
}

static void train_step(struct trainer *t, int rank, int step)
{
    uint8_t used[PARAMS];
    struct ctrun_error err;

    choose_used(t, rank, step, used);

    CHECK_OK(ctrun_ddp_zero_grad(t->ddp, NULL, &err));
    for (int m = 0; m < t->how.micros; m++) {
        ctrun_ddp_no_sync(t->ddp, m + 1 < t->how.micros);
        CHECK_OK(ctrun_ddp_forward_begin(t->ddp, &err));
        CHECK_OK(ctrun_ddp_backward_begin(t->ddp, t->how.ddp.find_unused ? used : NULL,
                                          &err));
        for (size_t p = PARAMS; p-- > 0;) {
            void *grad = ctrun_ddp_grad(t->ddp, p);

            if (!used[p])
                continue;
            for (size_t k = 0; k < lengths[p]; k++)
                put(t, grad, k,
                    get(t, grad, k) + get(t, t->values[p], k) +
                        cosf((float)(7 * rank + 3 * step + m) + (float)k));
            CHECK_OK(ctrun_ddp_grad_ready(t->ddp, p, NULL, &err));
        }
        CHECK_OK(ctrun_ddp_backward_end(t->ddp, NULL, &err));
    }
    if (t->how.max_norm > 0)
        CHECK_OK(ctrun_ddp_clip_grad_norm(t->ddp, t->how.max_norm, &t->norm, &err));
    update_all(t);
}

static uint64_t train(struct ctrun_group *group, const struct how *how, bool is_sharded)
{
    struct how own = *how;
    struct trainer t;

    own.ddp.shard_gradients = is_sharded;
    open_trainer(&t, group, &own);
    for (int i = 0; i < STEPS; i++)
        train_step(&t, ctrun_group_rank(group), i);
    return close_trainer(&t);
}

static void compare_body(struct ctrun_group *group, void *context)
{
    const struct how *how = context;

    CHECK(train(group, how, true) == train(group, how, false));
}

static void compare(const struct how *how)
{
    for (int ranks = 1; ranks <= 4; ranks++)
        worlds_run_with(ranks, compare_body, (void *)(uintptr_t)how);
}

static const struct how usual = {
    .dtype = CTRUN_F32, .ddp = CTRUN_DDP_OPTIONS_INIT, .micros = 1};

TEST(an_optimizer_with_and_without_state_gives_the_bits_of_plain_ddp)
{
    struct how how = usual;

    compare(&how);
    how.is_plain = true;
    compare(&how);
}

TEST(so_do_parameters_of_bf16)
{
    struct how how = usual;

    how.dtype = CTRUN_BF16;
    compare(&how);
}

TEST(so_do_gradients_that_travel_as_bf16)
{
    struct how how = usual;

    how.ddp.reduce_dtype = CTRUN_BF16;
    compare(&how);
}

TEST(so_do_gradients_in_the_callers_memory)
{
    struct how how = usual;

    how.is_own = true;
    compare(&how);
}

TEST(so_do_gradients_of_several_backwards)
{
    struct how how = usual;

    how.micros = 3;
    compare(&how);
}

TEST(so_do_a_static_graph_and_unused_parameters)
{
    struct how how = usual;

    how.ddp.static_graph = true;
    compare(&how);
    how.ddp.static_graph = false;
    how.ddp.find_unused = true;
    compare(&how);
}

/* ---- Clipping ---------------------------------------------------------------------------- */

/* Each rank adds up its slices first, so the norm may differ in its last bits. */
WORLD_TEST(clipping_scales_by_the_norm_of_all_slices, 3)
{
    struct how how = usual;
    struct trainer whole, cut;
    double norms[3];
    struct ctrun_error err;

    how.max_norm = 0.5;
    open_trainer(&whole, group, &how);
    how.ddp.shard_gradients = true;
    open_trainer(&cut, group, &how);
    train_step(&whole, ctrun_group_rank(group), 0);
    train_step(&cut, ctrun_group_rank(group), 0);
    CHECK(whole.norm > 5 && fabs(cut.norm - whole.norm) < 1e-12 * whole.norm);
    CHECK_OK(ctrun_all_gather(group, &cut.norm, norms, 1, CTRUN_F64, NULL, &err));
    CHECK(norms[0] == norms[1] && norms[1] == norms[2]);
    for (size_t p = 0; p < PARAMS; p++)
        for (size_t k = 0; k < lengths[p]; k++)
            CHECK(fabsf(get(&cut, cut.values[p], k) - get(&whole, whole.values[p], k)) <
                  1e-6f);
    CHECK(ctrun_ddp_clip_grad_norm(cut.ddp, 0, NULL, &err) == -EINVAL);
    close_trainer(&whole);
    close_trainer(&cut);
}

WORLD_TEST(a_slice_that_is_not_finite_is_told_to_all, 3)
{
    struct how how = usual;
    struct ctrun_error err;
    struct trainer t;

    how.ddp.shard_gradients = true;
    open_trainer(&t, group, &how);
    CHECK_OK(ctrun_ddp_forward_begin(t.ddp, &err));
    CHECK_OK(ctrun_ddp_backward_begin(t.ddp, NULL, &err));
    for (size_t p = 0; p < PARAMS; p++) {
        put(&t, ctrun_ddp_grad(t.ddp, p), 0,
            p == 3 && ctrun_group_rank(group) == 2 ? NAN : 1);
        CHECK_OK(ctrun_ddp_grad_ready(t.ddp, p, NULL, &err));
    }
    CHECK_OK(ctrun_ddp_backward_end(t.ddp, NULL, &err));
    CHECK(ctrun_ddp_clip_grad_norm(t.ddp, 1, NULL, &err) == CTRUN_E_DIVERGED);
    CHECK(strstr(err.text, "3 'd'"));
    close_trainer(&t);
}

/* ---- What is sent ------------------------------------------------------------------------ */

/* Elements that this rank must send and receive for the calls that begin with `from`, by the
 * fewest that each kind of call needs. total: of the parts of an all_gather_v. */
static size_t count_sent(const struct ct_flight *flight, uint64_t from, int size,
                         size_t total)
{
    const size_t ranks = (size_t)size;
    size_t sent = 0;

    for (uint64_t n = from; n <= atomic_load(&flight->calls); n++) {
        const struct ct_flight_entry *entry =
            &flight->entry[(n - 1) % CT_FLIGHT_ENTRIES];

        if (strcmp(entry->name, "all_reduce") == 0)
            sent += 2 * (ranks - 1) * entry->count;
        else if (strcmp(entry->name, "reduce_scatter") == 0)
            sent += (ranks - 1) * ranks * entry->count;
        else if (strcmp(entry->name, "all_gather_v") == 0)
            sent += (ranks - 1) * total;
        else
            CHECK(false);
    }
    return sent; /* of all ranks together */
}

static size_t count_step(struct ctrun_group *group, bool is_sharded, bool is_shared)
{
    struct how how = usual;
    int fd = ct_flight_open();
    struct ctrun_zero *even = NULL;
    const struct ct_flight *flight = mmap(NULL, sizeof *flight, PROT_READ, MAP_SHARED,
                                          fd, 0);
    struct ctrun_error err;
    struct trainer t;
    uint64_t from;
    size_t sent;

    CHECK(flight != MAP_FAILED);
    how.ddp.shard_gradients = is_sharded;
    open_trainer(&t, group, &how);
    CHECK_OK(ctrun_zero_create(&even, group, t.params, PARAMS, NULL, &err));
    train_step(&t, ctrun_group_rank(group), 0); /* the buckets are rebuilt behind it */
    CHECK_OK(ctrun_ddp_forward_begin(t.ddp, &err));
    from = atomic_load(&flight->calls) + 1;
    train_step(&t, ctrun_group_rank(group), 1);
    if (is_shared)
        CHECK_OK(ctrun_zero_share(even, NULL, &err));
    sent = count_sent(flight, from, ctrun_group_size(group), ALL);
    ctrun_zero_destroy(even);
    close_trainer(&t);
    CHECK(munmap((void *)(uintptr_t)flight, sizeof *flight) == 0);
    return sent;
}

WORLD_TEST(a_step_sends_what_one_of_plain_ddp_sends, 4)
{
    enum {
        BUCKETS_MAX = 5
    };
    const size_t ddp_alone = count_step(group, false, false);
    const size_t sharded = count_step(group, true, false);
    const size_t shared = count_step(group, false, true);

    /* The tails, of less than four floats a rank and bucket, are sent once more. */
    CHECK(sharded <= ddp_alone + (size_t)BUCKETS_MAX * 3 * 4 * 4);
    CHECK(shared > sharded + ALL);
}

/* ---- Misuse ------------------------------------------------------------------------------ */

static int no_hook(void *context, struct ctrun_group *group,
                   const struct ctrun_bucket *bucket, struct ctrun_work **work,
                   struct ctrun_error *err)
{
    return 0;
}

static const struct ctrun_powersgd_options powersgd = CTRUN_POWERSGD_OPTIONS_INIT;

static void retype(struct ctrun_param *params, enum ctrun_dtype dtype, double longer)
{
    for (int p = 0; p < PARAMS; p++) {
        params[p].dtype = dtype;
        params[p].sizes[0] = (int64_t)((double)params[p].sizes[0] * longer);
    }
}

WORLD_TEST(misuse_is_told, 2)
{
    struct ctrun_zero_options options = CTRUN_ZERO_OPTIONS_INIT;
    struct ctrun_zero *zero = NULL;
    struct ctrun_ddp *ddp = NULL;
    struct how how = usual;
    struct ctrun_error err;
    struct trainer t;

    open_trainer(&t, group, &how);
    options.ddp = t.ddp;
    CHECK(ctrun_zero_create(&zero, group, t.params, PARAMS, &options, &err) ==
          CTRUN_E_USAGE);
    CHECK(strstr(err.text, "shard_gradients"));
    close_trainer(&t);
    how.ddp.shard_gradients = true;
    open_trainer(&t, group, &how);
    options.ddp = ctrun_group_rank(group) == 0 ? t.ddp : NULL;
    CHECK(ctrun_zero_create(&zero, group, t.params, PARAMS, &options, &err) ==
          CTRUN_E_MISMATCH);
    options.ddp = t.ddp;
    CHECK(ctrun_zero_create(&zero, group, t.params, PARAMS - 1, &options, &err) ==
          -EINVAL);
    t.params[1].data = t.values[2];
    CHECK(ctrun_zero_create(&zero, group, t.params, PARAMS, &options, &err) == -EINVAL);
    t.params[1].data = t.values[1];
    t.params[3].sizes[0] /= 2;
    CHECK(ctrun_zero_create(&zero, group, t.params, PARAMS, &options, &err) == -EINVAL);
    t.params[3].sizes[0] *= 2;
    retype(t.params, CTRUN_BF16, 2); /* as many bytes */
    CHECK(ctrun_zero_create(&zero, group, t.params, PARAMS, &options, &err) == -EINVAL);
    retype(t.params, CTRUN_F32, 0.5);
    options.whole_params = true;
    CHECK(ctrun_zero_create(&zero, group, t.params, PARAMS, &options, &err) ==
          CTRUN_E_USAGE);
    how.ddp.hook = no_hook;
    CHECK(ctrun_ddp_create(&ddp, group, t.params, PARAMS, &how.ddp, &err) ==
          CTRUN_E_UNSUPPORTED);
    how.ddp.hook = NULL;
    how.ddp.powersgd = &powersgd;
    CHECK(ctrun_ddp_create(&ddp, group, t.params, PARAMS, &how.ddp, &err) ==
          CTRUN_E_UNSUPPORTED);
    how.ddp.powersgd = NULL;
    how.ddp.shard_gradients = ctrun_group_rank(group) == 0;
    CHECK(ctrun_ddp_create(&ddp, group, t.params, PARAMS, &how.ddp, &err) ==
          CTRUN_E_MISMATCH);
    close_trainer(&t);
}
