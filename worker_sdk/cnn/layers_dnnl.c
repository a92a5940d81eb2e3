/* SPDX-License-Identifier: Apache-2.0 */
/* The oneDNN back end: convolutions and pooling by its JIT kernels in one blocked layout from
 * conv1's output to conv2's gradient, fc1 by its sgemm, ReLU fused into the convolutions; the
 * ReLU behind conv2 is undone on the pooled gradient, a quarter of the size.
 *
 * Primitives are bound to a batch size, so an engine keeps a plan for each size it has used: the
 * training batch, the last batch of an epoch, the test batch. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/cnn/backend.h"
#include "worker_sdk/cnn/backends.h"
#include "worker_sdk/cnn/dnnl_api.h"
#include "worker_sdk/cnn/head.h"
#include "worker_sdk/cnn/random.h"

enum {
    PLANS_MAX = 6,
    MEMORIES_MAX = 32,
    STEPS_MAX = 10,
    ARGS_MAX = 5
};

struct step {
    dnnl_primitive_t primitive;
    int count;
    dnnl_exec_arg_t args[ARGS_MAX];
};

/* One convolution; `value` and `grad` are in PyTorch's order, the rest as the kernels want it. */
struct conv {
    dnnl_dims_t x_dims, w_dims, b_dims, y_dims;
    dnnl_primitive_desc_t forward;
    dnnl_memory_t x, w, b, y;
    dnnl_memory_t dy, dw, db, dw_plain;
};

struct plan {
    size_t n;
    dnnl_memory_t memories[MEMORIES_MAX]; /* all of them, to be destroyed */
    int memory_count;
    struct step forward[STEPS_MAX], backward_w2[STEPS_MAX], backward_w1[STEPS_MAX];
    int forward_count, backward_w2_count, backward_w1_count;
    struct conv conv1, conv2;
    dnnl_primitive_desc_t pool;
    dnnl_memory_t pooled, workspace;
    dnnl_memory_t flat, dflat; /* (B, 144, 64), oneDNN's nhwc */
    dnnl_memory_t dpooled, da1;
};

struct onednn {
    struct cnn_engine engine; /* first: the table casts */
    const struct cnn_dnnl_api *api;
    dnnl_engine_t cpu;
    dnnl_stream_t stream;
    struct plan *plans[PLANS_MAX];
    int plan_count;
    struct plan *plan; /* of the last forward */
    struct cnn_head head;
    struct cnn_batch batch;
};

static const dnnl_dims_t ONE = {1, 1}, NONE = {0, 0}, TWO = {2, 2};

/* ---- Building a plan: the first failure stays in `failed` ------------------------------ */

struct builder {
    struct onednn *self;
    const struct cnn_dnnl_api *api;
    struct plan *plan;
    dnnl_status_t failed;
    const char *where;
};

static void check(struct builder *b, dnnl_status_t status, const char *where)
{
    if (status != dnnl_success && b->failed == dnnl_success) {
        b->failed = status;
        b->where = where;
    }
}

static dnnl_memory_desc_t describe(struct builder *b, int dims, const dnnl_dims_t sizes,
                                   dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t md = {0};

    check(b, b->api->memory_desc_init_by_tag(&md, dims, sizes, dnnl_f32, tag),
          "layout");
    return md;
}

/* data: DNNL_MEMORY_ALLOCATE, DNNL_MEMORY_NONE (set later), or the caller's. */
static dnnl_memory_t add_memory(struct builder *b, const dnnl_memory_desc_t *md,
                                void *data)
{
    dnnl_memory_t memory = NULL;

    if (b->failed != dnnl_success || !md || b->plan->memory_count == MEMORIES_MAX) {
        check(b, dnnl_invalid_arguments, "memory");
        return NULL;
    }
    check(b, b->api->memory_create(&memory, md, b->self->cpu, data), "memory");
    if (memory)
        b->plan->memories[b->plan->memory_count++] = memory;
    return memory;
}

static const dnnl_memory_desc_t *query(struct builder *b, dnnl_primitive_desc_t pd,
                                       dnnl_query_t what)
{
    return pd ? b->api->primitive_desc_query_md(pd, what, 0) : NULL;
}

static dnnl_primitive_desc_t make(struct builder *b, const_dnnl_op_desc_t desc,
                                  const_dnnl_primitive_attr_t attr,
                                  const_dnnl_primitive_desc_t hint, const char *where)
{
    dnnl_primitive_desc_t pd = NULL;

    if (b->failed == dnnl_success)
        check(b, b->api->primitive_desc_create(&pd, desc, attr, b->self->cpu, hint),
              where);
    return pd;
}

/* Appends a step that runs pd on args; args end with a NULL memory. */
static void add_step(struct builder *b, struct step *steps, int *count,
                     dnnl_primitive_desc_t pd, const dnnl_exec_arg_t *args)
{
    struct step *step = &steps[*count];

    if (b->failed != dnnl_success)
        return;
    check(b, b->api->primitive_create(&step->primitive, pd), "primitive");
    for (step->count = 0; args[step->count].memory; step->count++)
        step->args[step->count] = args[step->count];
    (*count)++;
}

static void add_reorder(struct builder *b, struct step *steps, int *count,
                        dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_memory_desc_t *from_md = NULL, *to_md = NULL;
    dnnl_primitive_desc_t pd = NULL;

    if (b->failed != dnnl_success)
        return;
    b->api->memory_get_memory_desc(from, &from_md);
    b->api->memory_get_memory_desc(to, &to_md);
    check(b,
          b->api->reorder_primitive_desc_create(&pd, from_md, b->self->cpu, to_md,
                                                b->self->cpu, NULL),
          "reorder");
    add_step(b, steps, count, pd,
             (dnnl_exec_arg_t[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}, {0, NULL}});
    b->api->primitive_desc_destroy(pd);
}

/* An attribute that makes a convolution end with ReLU. With a slope of 0 oneDNN takes a maximum,
 * which turns NaN into 0; a slope this small keeps NaN and changes no sum. */
static dnnl_primitive_attr_t fuse_relu(struct builder *b)
{
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;

    check(b, b->api->primitive_attr_create(&attr), "attribute");
    check(b, b->api->post_ops_create(&ops), "attribute");
    if (b->failed == dnnl_success) {
        check(b,
              b->api->post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 1e-30f, 0),
              "ReLU");
        check(b, b->api->primitive_attr_set_post_ops(attr, ops), "ReLU");
    }
    b->api->post_ops_destroy(ops);
    return attr;
}

/* y = relu(conv(x)); every step copies the weights into the kernel's layout. */
static void build_conv_forward(struct builder *b, struct conv *conv,
                               const dnnl_memory_desc_t *x_md, enum cnn_param weight)
{
    struct plan *plan = b->plan;
    float *const *value = b->self->engine.model->values.of;
    const dnnl_memory_desc_t w_any = describe(b, 4, conv->w_dims, dnnl_format_tag_any);
    const dnnl_memory_desc_t w_plain = describe(b, 4, conv->w_dims, dnnl_oihw);
    const dnnl_memory_desc_t bias = describe(b, 1, conv->b_dims, dnnl_a);
    const dnnl_memory_desc_t y_any = describe(b, 4, conv->y_dims, dnnl_format_tag_any);
    dnnl_primitive_attr_t relu = fuse_relu(b);
    dnnl_convolution_desc_t desc;

    check(b,
          b->api->convolution_forward_desc_init(&desc, dnnl_forward_training,
                                                dnnl_convolution_direct, x_md, &w_any,
                                                &bias, &y_any, ONE, NONE, NONE),
          "convolution");
    conv->forward = make(b, &desc, relu, NULL, "convolution");
    b->api->primitive_attr_destroy(relu);
    conv->w = add_memory(b, query(b, conv->forward, dnnl_query_weights_md),
                         DNNL_MEMORY_ALLOCATE);
    conv->b = add_memory(b, &bias, value[weight + 1]);
    conv->y = add_memory(b, query(b, conv->forward, dnnl_query_dst_md),
                         DNNL_MEMORY_ALLOCATE);
    add_reorder(b, plan->forward, &plan->forward_count,
                add_memory(b, &w_plain, value[weight]), conv->w);
    add_step(b, plan->forward, &plan->forward_count, conv->forward,
             (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, conv->x},
                                 {DNNL_ARG_WEIGHTS, conv->w},
                                 {DNNL_ARG_BIAS, conv->b},
                                 {DNNL_ARG_DST, conv->y},
                                 {0, NULL}});
}

/* dw and db from x and dy, and dw once more in PyTorch's order. */
static void build_conv_backward_w(struct builder *b, struct conv *conv,
                                  struct step *steps, int *count)
{
    const dnnl_memory_desc_t w_any = describe(b, 4, conv->w_dims, dnnl_format_tag_any);
    const dnnl_memory_desc_t w_plain = describe(b, 4, conv->w_dims, dnnl_oihw);
    const dnnl_memory_desc_t bias = describe(b, 1, conv->b_dims, dnnl_a);
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd;

    check(b,
          b->api->convolution_backward_weights_desc_init(
              &desc, dnnl_convolution_direct,
              query(b, conv->forward, dnnl_query_src_md), &w_any, &bias,
              query(b, conv->forward, dnnl_query_dst_md), ONE, NONE, NONE),
          "weight gradient");
    pd = make(b, &desc, NULL, conv->forward, "weight gradient");
    conv->dw = add_memory(b, query(b, pd, dnnl_query_diff_weights_md),
                          DNNL_MEMORY_ALLOCATE);
    conv->db = add_memory(b, &bias, DNNL_MEMORY_NONE);
    conv->dw_plain = add_memory(b, &w_plain, DNNL_MEMORY_NONE);
    add_step(b, steps, count, pd,
             (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, conv->x},
                                 {DNNL_ARG_DIFF_DST, conv->dy},
                                 {DNNL_ARG_DIFF_WEIGHTS, conv->dw},
                                 {DNNL_ARG_DIFF_BIAS, conv->db},
                                 {0, NULL}});
    add_reorder(b, steps, count, conv->dw, conv->dw_plain);
    b->api->primitive_desc_destroy(pd);
}

/* da1 = conv2's gradient at its input, in the layout of conv1's output. */
static void build_conv2_backward_x(struct builder *b)
{
    struct plan *plan = b->plan;
    struct conv *conv = &plan->conv2;
    const dnnl_memory_desc_t w_any = describe(b, 4, conv->w_dims, dnnl_format_tag_any);
    const dnnl_memory_desc_t *x_md = query(b, conv->forward, dnnl_query_src_md);
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd;
    dnnl_memory_t w;

    check(b,
          b->api->convolution_backward_data_desc_init(
              &desc, dnnl_convolution_direct, x_md, &w_any,
              query(b, conv->forward, dnnl_query_dst_md), ONE, NONE, NONE),
          "input gradient");
    pd = make(b, &desc, NULL, conv->forward, "input gradient");
    w = add_memory(b, query(b, pd, dnnl_query_weights_md), DNNL_MEMORY_ALLOCATE);
    plan->da1 = add_memory(b, x_md, DNNL_MEMORY_ALLOCATE);
    add_reorder(b, plan->backward_w1, &plan->backward_w1_count, conv->w, w);
    add_step(b, plan->backward_w1, &plan->backward_w1_count, pd,
             (dnnl_exec_arg_t[]){{DNNL_ARG_DIFF_DST, conv->dy},
                                 {DNNL_ARG_WEIGHTS, w},
                                 {DNNL_ARG_DIFF_SRC, plan->da1},
                                 {0, NULL}});
    b->api->primitive_desc_destroy(pd);
}

/* Pooling, and the exchange of layouts between it and fc1. */
static void build_pool_forward(struct builder *b)
{
    struct plan *plan = b->plan;
    const dnnl_dims_t dims = {(dnnl_dim_t)plan->n, CNN_C2, CNN_POOLED, CNN_POOLED};
    const dnnl_memory_desc_t any = describe(b, 4, dims, dnnl_format_tag_any);
    const dnnl_memory_desc_t nhwc = describe(b, 4, dims, dnnl_nhwc);
    dnnl_pooling_desc_t desc;

    check(b,
          b->api->pooling_forward_desc_init(
              &desc, dnnl_forward_training, dnnl_pooling_max,
              query(b, plan->conv2.forward, dnnl_query_dst_md), &any, TWO, TWO, NONE,
              NONE),
          "pooling");
    plan->pool = make(b, &desc, NULL, NULL, "pooling");
    plan->pooled = add_memory(b, query(b, plan->pool, dnnl_query_dst_md),
                              DNNL_MEMORY_ALLOCATE);
    plan->workspace = add_memory(b, query(b, plan->pool, dnnl_query_workspace_md),
                                 DNNL_MEMORY_ALLOCATE);
    plan->flat = add_memory(b, &nhwc, DNNL_MEMORY_ALLOCATE);
    plan->dflat = add_memory(b, &nhwc, DNNL_MEMORY_ALLOCATE);
    add_step(b, plan->forward, &plan->forward_count, plan->pool,
             (dnnl_exec_arg_t[]){{DNNL_ARG_SRC, plan->conv2.y},
                                 {DNNL_ARG_DST, plan->pooled},
                                 {DNNL_ARG_WORKSPACE, plan->workspace},
                                 {0, NULL}});
    add_reorder(b, plan->forward, &plan->forward_count, plan->pooled, plan->flat);
}

static void build_pool_backward(struct builder *b)
{
    struct plan *plan = b->plan;
    const dnnl_memory_desc_t *y_md = query(b, plan->conv2.forward, dnnl_query_dst_md);
    const dnnl_memory_desc_t *pooled_md = query(b, plan->pool, dnnl_query_dst_md);
    dnnl_pooling_desc_t desc;
    dnnl_primitive_desc_t pd;

    check(b,
          b->api->pooling_backward_desc_init(&desc, dnnl_pooling_max, y_md, pooled_md,
                                             TWO, TWO, NONE, NONE),
          "pooling gradient");
    pd = make(b, &desc, NULL, plan->pool, "pooling gradient");
    plan->dpooled = add_memory(b, pooled_md, DNNL_MEMORY_ALLOCATE);
    plan->conv2.dy = add_memory(b, y_md, DNNL_MEMORY_ALLOCATE);
    add_reorder(b, plan->backward_w2, &plan->backward_w2_count, plan->dflat,
                plan->dpooled);
    add_step(b, plan->backward_w2, &plan->backward_w2_count, pd,
             (dnnl_exec_arg_t[]){{DNNL_ARG_DIFF_DST, plan->dpooled},
                                 {DNNL_ARG_WORKSPACE, plan->workspace},
                                 {DNNL_ARG_DIFF_SRC, plan->conv2.dy},
                                 {0, NULL}});
    b->api->primitive_desc_destroy(pd);
}

static void set_dims(struct plan *plan)
{
    const dnnl_dim_t n = (dnnl_dim_t)plan->n;

    plan->conv1 = (struct conv){.x_dims = {n, 1, CNN_SIDE, CNN_SIDE},
                                .w_dims = {CNN_C1, 1, 3, 3},
                                .b_dims = {CNN_C1},
                                .y_dims = {n, CNN_C1, CNN_SIDE1, CNN_SIDE1}};
    plan->conv2 = (struct conv){.x_dims = {n, CNN_C1, CNN_SIDE1, CNN_SIDE1},
                                .w_dims = {CNN_C2, CNN_C1, 3, 3},
                                .b_dims = {CNN_C2},
                                .y_dims = {n, CNN_C2, CNN_SIDE2, CNN_SIDE2}};
}

static void plan_destroy(struct onednn *self, struct plan *plan)
{
    struct step *const lists[] = {plan->forward, plan->backward_w2, plan->backward_w1};
    const int counts[] = {plan->forward_count, plan->backward_w2_count,
                          plan->backward_w1_count};

    for (int l = 0; l < 3; l++)
        for (int i = 0; i < counts[l]; i++)
            self->api->primitive_destroy(lists[l][i].primitive);
    for (int i = 0; i < plan->memory_count; i++)
        self->api->memory_destroy(plan->memories[i]);
    self->api->primitive_desc_destroy(plan->conv1.forward);
    self->api->primitive_desc_destroy(plan->conv2.forward);
    self->api->primitive_desc_destroy(plan->pool);
    free(plan);
}

static int plan_create(struct plan **out, struct onednn *self, size_t n,
                       struct ctrun_error *err)
{
    struct plan *plan = ct_zalloc(sizeof *plan);
    struct builder b = {.self = self, .api = self->api, .plan = plan};
    dnnl_memory_desc_t x_md;

    if (!plan)
        return ct_fail(err, -ENOMEM, "oneDNN for a batch of %zu: out of memory", n);
    plan->n = n;
    set_dims(plan);
    x_md = describe(&b, 4, plan->conv1.x_dims, dnnl_nchw);
    plan->conv1.x = add_memory(&b, &x_md, DNNL_MEMORY_ALLOCATE);
    build_conv_forward(&b, &plan->conv1, &x_md, CNN_CONV1_W);
    plan->conv2.x = plan->conv1.y;
    build_conv_forward(&b, &plan->conv2,
                       query(&b, plan->conv1.forward, dnnl_query_dst_md), CNN_CONV2_W);
    build_pool_forward(&b);
    build_pool_backward(&b);
    build_conv_backward_w(&b, &plan->conv2, plan->backward_w2,
                          &plan->backward_w2_count);
    build_conv2_backward_x(&b);
    plan->conv1.dy = plan->da1;
    build_conv_backward_w(&b, &plan->conv1, plan->backward_w1,
                          &plan->backward_w1_count);
    if (b.failed != dnnl_success) {
        plan_destroy(self, plan);
        return ct_fail(err, CTRUN_E_UNSUPPORTED,
                       "oneDNN for a batch of %zu: %s: status %d", n, b.where,
                       (int)b.failed);
    }
    *out = plan;
    return 0;
}

/* The plan for n samples; when there are too many, the oldest plan is freed. */
static int find_plan(struct onednn *self, size_t n, struct ctrun_error *err)
{
    int rc;

    for (int i = 0; i < self->plan_count; i++) {
        if (self->plans[i]->n == n) {
            self->plan = self->plans[i];
            return 0;
        }
    }
    if (self->plan_count == PLANS_MAX) {
        plan_destroy(self, self->plans[0]);
        memmove(self->plans, self->plans + 1, (PLANS_MAX - 1) * sizeof *self->plans);
        self->plan_count--;
    }
    if ((rc = plan_create(&self->plan, self, n, err)) < 0)
        return rc;
    self->plans[self->plan_count++] = self->plan;
    return 0;
}

/* ---- Running it -------------------------------------------------------------------------- */

static float *data_of(const struct onednn *self, dnnl_memory_t memory)
{
    void *data = NULL;

    self->api->memory_get_data_handle(memory, &data);
    return data;
}

static int run_steps(struct onednn *self, const struct step *steps, int first, int end,
                     struct ctrun_error *err)
{
    dnnl_status_t status = dnnl_success;

    for (int i = first; i < end && status == dnnl_success; i++)
        status = self->api->primitive_execute(steps[i].primitive, self->stream,
                                              steps[i].count, steps[i].args);
    if (status == dnnl_success)
        status = self->api->stream_wait(self->stream);
    if (status != dnnl_success)
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "oneDNN: a kernel failed: status %d",
                       (int)status);
    return 0;
}

static int gemm(struct onednn *self, const char *transpose, const dnnl_dim_t mnk[3],
                const float *a, const float *b, float beta, float *c,
                struct ctrun_error *err)
{
    const dnnl_dim_t m = mnk[0], n = mnk[1], k = mnk[2];
    const dnnl_dim_t lda = transpose[0] == 'T' ? m : k,
                     ldb = transpose[1] == 'T' ? k : n;
    const dnnl_status_t status = self->api->sgemm(transpose[0], transpose[1], m, n, k,
                                                  1.0f, a, lda, b, ldb, beta, c, n);

    if (status != dnnl_success)
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "oneDNN: sgemm failed: status %d",
                       (int)status);
    return 0;
}

/* Elementwise work between the kernels, split over the team by samples. */
struct part {
    struct onednn *self;
    float *x, *flat, *dflat, *a1, *da1;
};

static void gather_part(void *context, int index, int count)
{
    struct part *part = context;
    struct onednn *self = part->self;
    size_t first, end;

    cnn_team_split(self->batch.count, index, count, &first, &end);
    if (first < end)
        ctrun_dataset_gather(self->batch.data, self->batch.indices + first, end - first,
                             CNN_MEAN, CNN_STD, part->x + first * CNN_PIXELS,
                             self->head.labels + first);
}

/* Dropout 1 on the pooled values, and fc1's bias where its sum will be added. */
static void drop_part(void *context, int index, int count)
{
    struct part *part = context;
    struct onednn *self = part->self;
    size_t first, end;

    cnn_team_split(self->batch.count, index, count, &first, &end);
    for (size_t i = first; i < end; i++) {
        float *flat = part->flat + i * CNN_FLAT;
        uint64_t keep[CNN_KEEP1_WORDS];

        memcpy(self->head.hidden + i * CNN_HIDDEN,
               self->engine.model->values.of[CNN_FC1_B], CNN_HIDDEN * sizeof(float));
        if (!self->batch.train)
            continue;
        cnn_engine_keep1(&self->engine, &self->batch, i, keep);
        for (size_t t = 0; t < CNN_WINDOWS; t++, flat += CNN_C2)
            for (size_t c = 0; c < CNN_C2; c++)
                flat[c] *= keep[t] >> c & 1 ? self->engine.scale1 : 0.0f;
    }
}

/* Backward through dropout 1 and conv2's ReLU: both left a zero where no gradient passes. */
static void undrop_part(void *context, int index, int count)
{
    const struct part *part = context;
    const float scale = part->self->engine.scale1;
    size_t first, end;

    cnn_team_split(part->self->batch.count * CNN_FLAT, index, count, &first, &end);
    for (size_t i = first; i < end; i++)
        part->dflat[i] = part->flat[i] > 0 ? scale * part->dflat[i] : 0.0f;
}

static void unrelu_part(void *context, int index, int count)
{
    const struct part *part = context;
    size_t first, end;

    cnn_team_split(part->self->batch.count * CNN_C1 * CNN_AREA1, index, count, &first,
                   &end);
    for (size_t i = first; i < end; i++)
        part->da1[i] = part->a1[i] > 0 ? part->da1[i] : 0.0f;
}

static struct part part_of(struct onednn *self)
{
    const struct plan *plan = self->plan;

    return (struct part){.self = self,
                         .x = data_of(self, plan->conv1.x),
                         .flat = data_of(self, plan->flat),
                         .dflat = data_of(self, plan->dflat),
                         .a1 = data_of(self, plan->conv1.y),
                         .da1 = data_of(self, plan->da1)};
}

static int onednn_forward(struct cnn_engine *engine, const struct cnn_batch *batch,
                          struct ctrun_error *err)
{
    struct onednn *self = (struct onednn *)engine;
    const dnnl_dim_t mnk[3] = {(dnnl_dim_t)batch->count, CNN_HIDDEN, CNN_FLAT};
    struct part part;
    int rc;

    self->batch = *batch;
    if (batch->count == 0)
        return 0;
    if ((rc = find_plan(self, batch->count, err)) < 0)
        return rc;
    if (cnn_head_reserve(&self->head, batch->count) < 0)
        return ct_fail(err, -ENOMEM, "a batch of %zu: out of memory", batch->count);
    part = part_of(self);
    cnn_team_run(engine->team, gather_part, &part);
    if ((rc = run_steps(self, self->plan->forward, 0, self->plan->forward_count, err)) <
        0)
        return rc;
    cnn_team_run(engine->team, drop_part, &part);
    if ((rc = gemm(self, "NN", mnk, part.flat, engine->model->values.of[CNN_FC1_W],
                   1.0f, self->head.hidden, err)) < 0)
        return rc;
    cnn_head_forward(&self->head, engine, batch);
    return 0;
}

static int ready(cnn_ready_fn *on_ready, void *context, const enum cnn_param *list,
                 int n, struct ctrun_error *err)
{
    int rc = 0;

    for (int i = 0; i < n && rc >= 0; i++)
        rc = on_ready(context, list[i], err);
    return rc;
}

static const enum cnn_param LINEAR[] = {CNN_FC2_B, CNN_FC2_W, CNN_FC1_B, CNN_FC1_W};
static const enum cnn_param SECOND[] = {CNN_CONV2_W, CNN_CONV2_B};
static const enum cnn_param FIRST[] = {CNN_CONV1_W, CNN_CONV1_B};

static int clear_grads(float *const grads[CNN_PARAMS], cnn_ready_fn *on_ready,
                       void *context, struct ctrun_error *err)
{
    int rc;

    for (enum cnn_param p = 0; p < CNN_PARAMS; p++)
        memset(grads[p], 0, cnn_params[p].count * sizeof(float));
    if ((rc = ready(on_ready, context, LINEAR, 4, err)) < 0 ||
        (rc = ready(on_ready, context, SECOND, 2, err)) < 0)
        return rc;
    return ready(on_ready, context, FIRST, 2, err);
}

static void aim_conv(struct onednn *self, struct conv *conv, float *dw, float *db)
{
    self->api->memory_set_data_handle(conv->dw_plain, dw);
    self->api->memory_set_data_handle(conv->db, db);
}

static int onednn_backward(struct cnn_engine *engine, float *const grads[CNN_PARAMS],
                           cnn_ready_fn *on_ready, void *context,
                           struct ctrun_error *err)
{
    struct onednn *self = (struct onednn *)engine;
    struct plan *plan = self->plan;
    const dnnl_dim_t n = (dnnl_dim_t)self->batch.count;
    struct part part;
    int rc;

    if (n == 0)
        return clear_grads(grads, on_ready, context, err);
    part = part_of(self);
    cnn_head_backward(&self->head, engine, &self->batch, grads);
    if ((rc = gemm(self, "TN", (dnnl_dim_t[]){CNN_FLAT, CNN_HIDDEN, n}, part.flat,
                   self->head.dhidden, 0, grads[CNN_FC1_W], err)) < 0 ||
        (rc = ready(on_ready, context, LINEAR, 4, err)) < 0 ||
        (rc = gemm(self, "NT", (dnnl_dim_t[]){n, CNN_FLAT, CNN_HIDDEN},
                   self->head.dhidden, engine->model->values.of[CNN_FC1_W], 0,
                   part.dflat, err)) < 0)
        return rc;
    cnn_team_run(engine->team, undrop_part, &part);
    aim_conv(self, &plan->conv2, grads[CNN_CONV2_W], grads[CNN_CONV2_B]);
    if ((rc = run_steps(self, plan->backward_w2, 0, plan->backward_w2_count, err)) <
            0 ||
        (rc = ready(on_ready, context, SECOND, 2, err)) < 0)
        return rc;
    aim_conv(self, &plan->conv1, grads[CNN_CONV1_W], grads[CNN_CONV1_B]);
    if ((rc = run_steps(self, plan->backward_w1, 0, 2, err)) < 0) /* weights, dX */
        return rc;
    cnn_team_run(engine->team, unrelu_part, &part);
    if ((rc = run_steps(self, plan->backward_w1, 2, plan->backward_w1_count, err)) < 0)
        return rc;
    return ready(on_ready, context, FIRST, 2, err);
}

/* ---- Opening and closing ----------------------------------------------------------------- */

static bool onednn_is_usable(char *why, size_t size)
{
    return cnn_dnnl_load(why, size) != NULL;
}

static void onednn_close(struct cnn_engine *engine)
{
    struct onednn *self = (struct onednn *)engine;

    for (int i = 0; i < self->plan_count; i++)
        plan_destroy(self, self->plans[i]);
    if (self->stream)
        self->api->stream_destroy(self->stream);
    if (self->cpu)
        self->api->engine_destroy(self->cpu);
    cnn_head_deinit(&self->head);
    cnn_engine_deinit(engine);
    free(self);
}

static int onednn_open(struct cnn_engine **out,
                       const struct cnn_engine_options *options,
                       struct ctrun_error *err)
{
    struct onednn *self = ct_zalloc(sizeof *self);
    char why[200];
    int rc;

    if (!self)
        return ct_fail(err, -ENOMEM, "open oneDNN: out of memory");
    if (!(self->api = cnn_dnnl_load(why, sizeof why))) {
        free(self);
        return ct_fail(err, CTRUN_E_UNSUPPORTED, "open oneDNN: %s", why);
    }
    if (self->api->set_threads)
        self->api->set_threads(options->threads);
    if ((rc = cnn_engine_init(&self->engine, &cnn_backend_onednn, options, err)) < 0)
        goto fail;
    if (self->api->engine_create(&self->cpu, dnnl_cpu, 0) != dnnl_success ||
        self->api->stream_create(&self->stream, self->cpu, dnnl_stream_default_flags) !=
            dnnl_success) {
        rc = ct_fail(err, CTRUN_E_UNSUPPORTED, "open oneDNN: it has no CPU engine");
        goto fail;
    }
    *out = &self->engine;
    return 0;
fail:
    onednn_close(&self->engine);
    return rc;
}

const struct cnn_backend cnn_backend_onednn = {
    .name = "onednn",
    .is_usable = onednn_is_usable,
    .open = onednn_open,
    .close = onednn_close,
    .forward = onednn_forward,
    .backward = onednn_backward,
    .update = cnn_engine_update,
};
