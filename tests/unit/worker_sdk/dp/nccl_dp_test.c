/* SPDX-License-Identifier: Apache-2.0 */
/* DataParallel on GPUs, over the fake of tests/lib/fake_nccl.h: several devices in this process,
 * each with memory that neither the host nor a kernel of another device can access. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/half.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/comm/group_private.h"
#include "worker_sdk/dp/dp.h"

enum {
    DEVICES = 3,
    COUNT = 1000,
    SAMPLES = 10,
    TIMEOUT_MS = 30000,
    SHORT_MS = 200, /* for calls that cannot succeed */
    LATE_US = 2000,
};

static int begin(void **state)
{
    fake_nccl_use((struct fake_nccl){.more_devices = DEVICES - 1});
    return cudaSetDevice(0) != cudaSuccess;
}

/* A model of three parameters: weights (f32), a mean that gets no gradient, and one of f16. */
struct model {
    struct ctrun_dp *dp;
    struct ctrun_param params[3];
    bool is_on_gpus;
    cudaStream_t streams[DEVICES];
    void *own_grad; /* memory for the gradient of the weights; NULL: that of dp */
};

static float start_of(int i)
{
    return 1.0f / (float)(i + 1);
}

static void *memory_of(const struct model *model, size_t bytes)
{
    void *at;

    if (!model->is_on_gpus)
        assert_non_null(at = calloc(1, bytes));
    else
        assert_int_equal(cudaMalloc(&at, bytes), cudaSuccess);
    return at;
}

/* The address at which the host can access it. */
static void *seen(const struct model *model, void *at)
{
    return model->is_on_gpus ? fake_device(at) : at;
}

static void make_params(struct model *model)
{
    static const size_t bytes[] = {COUNT * sizeof(float), sizeof(float), 2};
    float *weights;

    for (int p = 0; p < 3; p++) {
        model->params[p] = (struct ctrun_param)CTRUN_PARAM_INIT;
        model->params[p].name = "p";
        model->params[p].data = memory_of(model, bytes[p]);
    }
    model->params[0].dims = 1;
    model->params[0].sizes[0] = COUNT;
    model->params[1].no_grad = model->params[1].is_buffer = true;
    model->params[2].dtype = CTRUN_F16;
    weights = seen(model, model->params[0].data);
    for (int i = 0; i < COUNT; i++)
        weights[i] = start_of(i);
    *(float *)seen(model, model->params[1].data) = 0.5f;
    *(uint16_t *)seen(model, model->params[2].data) = 0x3c00;
}

static struct ctrun_dp_options options_of(struct model *model, uint64_t timeout_ms)
{
    struct ctrun_dp_options options = CTRUN_DP_OPTIONS_INIT;

    options.backend = model->is_on_gpus ? "nccl" : "host";
    options.streams = model->is_on_gpus ? (void *const *)model->streams : NULL;
    options.timeout_ms = timeout_ms;
    return options;
}

static int create(struct model *model, uint64_t timeout_ms, struct ctrun_error *err)
{
    const struct ctrun_dp_options options = options_of(model, timeout_ms);

    return ctrun_dp_create_on(&model->dp, model->params, 3, DEVICES, &options, err);
}

static void make_streams(struct model *model)
{
    for (int d = 0; model->is_on_gpus && d < DEVICES; d++) {
        assert_int_equal(cudaSetDevice(d), cudaSuccess);
        assert_int_equal(
            cudaStreamCreateWithFlags(&model->streams[d], cudaStreamNonBlocking),
            cudaSuccess);
    }
    if (model->is_on_gpus)
        assert_int_equal(cudaSetDevice(0), cudaSuccess);
}

static struct model make(bool is_on_gpus)
{
    struct model model = {.is_on_gpus = is_on_gpus};
    struct ctrun_error err;

    make_params(&model);
    make_streams(&model);
    assert_int_equal(create(&model, TIMEOUT_MS, &err), 0);
    return model;
}

/* Frees all. Nothing may be left. */
static void end(struct model *model)
{
    ctrun_dp_destroy(model->dp);
    for (int p = 0; p < 3; p++)
        if (model->is_on_gpus)
            assert_int_equal(cudaFree(model->params[p].data), cudaSuccess);
        else
            free(model->params[p].data);
    for (int d = 0; model->is_on_gpus && d < DEVICES; d++)
        assert_int_equal(cudaStreamDestroy(model->streams[d]), cudaSuccess);
    if (model->own_grad)
        assert_int_equal(cudaFree(model->own_grad), cudaSuccess);
    assert_int_equal(fake_nccl.registered, 0);
    assert_int_equal(fake_nccl.blocks, 0);
}

/* ---- A step ------------------------------------------------------------------------------ */

struct work {
    struct model *model;
    int device;
    float *value, *grad;
    uint16_t *half_grad;
    const float *mean;
    void *(*see)(void *at);
};

static void *see_host(void *at)
{
    return at;
}

/* The gradient of sample s is (s + 1) times the value. */
static void run_backward(void *context)
{
    struct work *work = context;
    const float *value = work->see(work->value);
    float *grad = work->see(work->grad);
    size_t first, count;

    (void)ctrun_dp_scatter(work->model->dp, SAMPLES, work->device, &first, &count);
    for (size_t s = first; s < first + count; s++)
        for (int i = 0; i < COUNT; i++)
            grad[i] += (float)(s + 1) * value[i];
    *(uint16_t *)work->see(work->half_grad) = ct_f16_of_float((float)count);
    if (*(const float *)work->see((void *)(uintptr_t)work->mean) != 0.5f)
        grad[0] = -1;
    free(work);
}

static int backward(void *context, int device, struct ctrun_error *err)
{
    struct model *model = context;
    struct ctrun_dp *dp = model->dp;
    struct work *work = malloc(sizeof *work);
    int current = -1;

    if (!work)
        return ct_fail(err, -ENOMEM, "no memory");
    *work = (struct work){.model = model,
                          .device = device,
                          .value = ctrun_dp_value(dp, device, 0),
                          .grad = ctrun_dp_grad(dp, device, 0),
                          .half_grad = ctrun_dp_grad(dp, device, 2),
                          .mean = ctrun_dp_value(dp, device, 1),
                          .see = model->is_on_gpus ? fake_device : see_host};
    if (!model->is_on_gpus)
        run_backward(work);
    else if (cudaGetDevice(&current) != cudaSuccess || current != device)
        return free(work), ct_fail(err, -EDOM, "device %d is current", current);
    else
        fake_launch(model->streams[device], run_backward, work);
    return 0;
}

static int try_step(struct model *model, struct ctrun_error *err)
{
    const int replicas = ctrun_dp_scatter(model->dp, SAMPLES, 0, NULL, NULL);
    int rc = ctrun_dp_replicate(model->dp, replicas, err);

    if (rc == 0)
        rc = ctrun_dp_apply(model->dp, replicas, backward, model, err);
    return rc == 0 ? ctrun_dp_reduce(model->dp, replicas, err) : rc;
}

static void step(struct model *model)
{
    struct ctrun_error err;

    assert_int_equal(try_step(model, &err), 0);
}

TEST_AROUND(gradients_are_those_of_the_host_to_the_bit, begin, NULL)
{
    struct model host = make(false), gpus;
    const float *want = ctrun_dp_grad(host.dp, 0, 0), *got;

    fake_nccl.late_us = LATE_US / 10;
    gpus = make(true);
    got = seen(&gpus, ctrun_dp_grad(gpus.dp, 0, 0));
    for (int i = 0; i < 3; i++) { /* gradients accumulate on device 0 */
        step(&host);
        step(&gpus);
        assert_memory_equal(got, want, COUNT * sizeof *want);
    }
    assert_true(want[0] > 0);
    assert_memory_equal(seen(&gpus, ctrun_dp_grad(gpus.dp, 0, 2)),
                        ctrun_dp_grad(host.dp, 0, 2), 2);
    for (int d = 0; d < DEVICES; d++) {
        assert_memory_equal(seen(&gpus, ctrun_dp_value(gpus.dp, d, 0)),
                            host.params[0].data, COUNT * sizeof *want);
        got = seen(&gpus, ctrun_dp_grad(gpus.dp, d, 0));
        for (int i = 0; d > 0 && i < COUNT; i++)
            assert_true(got[i] == 0);
    }
    assert_ptr_equal(ctrun_dp_value(gpus.dp, 0, 0), gpus.params[0].data);
    assert_null(ctrun_dp_grad(gpus.dp, 1, 1));
    end(&gpus);
    fake_nccl.blocks = 0;
    end(&host);
}

static void double_weights(void *context)
{
    float *weights = fake_device(context);

    for (int i = 0; i < COUNT; i++)
        weights[i] *= 2;
}

/* An update is still running when replicate() is called. */
TEST_AROUND(replicas_get_what_comes_before_on_the_first_stream, begin, NULL)
{
    struct model model = make(true);
    struct ctrun_error err;

    fake_nccl.late_us = LATE_US;
    fake_launch(model.streams[0], double_weights, model.params[0].data);
    assert_int_equal(ctrun_dp_replicate(model.dp, DEVICES, &err), 0);
    for (int d = 0; d < DEVICES; d++)
        for (int i = 0; i < COUNT; i++)
            assert_true(((float *)seen(&model, ctrun_dp_value(model.dp, d, 0)))[i] ==
                        2 * start_of(i));
    end(&model);
}

TEST_AROUND(gradients_may_lie_in_memory_of_the_caller, begin, NULL)
{
    struct model host = make(false), model = {.is_on_gpus = true};
    struct ctrun_error err;

    make_params(&model);
    make_streams(&model);
    assert_int_equal(cudaMalloc(&model.own_grad, COUNT * sizeof(float)), cudaSuccess);
    memset(fake_device(model.own_grad), 0, COUNT * sizeof(float));
    model.params[0].grad = model.own_grad;
    assert_int_equal(create(&model, TIMEOUT_MS, &err), 0);
    assert_ptr_equal(ctrun_dp_grad(model.dp, 0, 0), model.own_grad);
    step(&host);
    step(&model);
    assert_memory_equal(fake_device(model.own_grad), ctrun_dp_grad(host.dp, 0, 0),
                        COUNT * sizeof(float));
    end(&model);
    end(&host);
}

/* ---- gather ------------------------------------------------------------------------------ */

TEST_AROUND(pieces_of_the_devices_become_one_tensor_on_the_first, begin, NULL)
{
    struct model model = make(true);
    struct ctrun_tensor pieces[DEVICES] = {CTRUN_TENSOR_INIT, CTRUN_TENSOR_INIT,
                                           CTRUN_TENSOR_INIT};
    struct ctrun_tensor out = CTRUN_TENSOR_INIT;
    const float *whole;
    struct ctrun_error err;
    void *room;

    assert_int_equal(cudaMalloc(&room, 6 * sizeof(float)), cudaSuccess);
    for (int d = 0; d < DEVICES; d++) { /* 1, 2 and 3 numbers */
        pieces[d].data = ctrun_dp_value(model.dp, d, 0);
        pieces[d].dims = 1;
        pieces[d].sizes[0] = d + 1;
    }
    assert_int_equal(ctrun_dp_replicate(model.dp, DEVICES, &err), 0);
    assert_int_equal(ctrun_dp_collect(model.dp, pieces, DEVICES, room,
                                      6 * sizeof(float), &out, &err),
                     0);
    whole = fake_device(room);
    assert_true(out.dims == 1 && out.sizes[0] == 6 && out.data == room);
    for (int d = 0, i = 0; d < DEVICES; d++)
        for (int k = 0; k <= d; k++)
            assert_true(whole[i++] == start_of(k));
    assert_int_equal(ctrun_dp_collect(model.dp, pieces, DEVICES, room,
                                      5 * sizeof(float), &out, &err),
                     -ENOSPC);
    assert_int_equal(ctrun_dp_collect(model.dp, pieces, DEVICES + 1, room,
                                      6 * sizeof(float), &out, &err),
                     -EINVAL);
    assert_int_equal(cudaFree(room), cudaSuccess);
    end(&model);
}

/* ---- What fails -------------------------------------------------------------------------- */

static int fail_on_1(void *context, int device, struct ctrun_error *err)
{
    return device == 1 ? ct_fail(err, -EDOM, "no luck") : 0;
}

TEST_AROUND(a_replica_that_fails_is_named_and_the_others_live, begin, NULL)
{
    struct model model = make(true);
    struct ctrun_error err;

    assert_int_equal(ctrun_dp_apply(model.dp, DEVICES, fail_on_1, NULL, &err), -EDOM);
    assert_string_equal(err.text, "in replica 1 on device 1: no luck");
    step(&model);
    end(&model);
}

TEST_AROUND(parameters_on_another_device_are_refused, begin, NULL)
{
    struct model model = {.is_on_gpus = true};
    void *right, *wrong;
    struct ctrun_error err;
    float host;

    make_params(&model);
    make_streams(&model);
    right = model.params[1].data;
    assert_int_equal(cudaSetDevice(2), cudaSuccess);
    assert_int_equal(cudaMalloc(&wrong, sizeof host), cudaSuccess);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    model.params[1].data = wrong;
    assert_int_equal(create(&model, TIMEOUT_MS, &err), -EINVAL);
    assert_non_null(strstr(err.text, "on device cuda:0 (device_ids[0]) but found one "
                                     "of them on device: cuda:2: 'p'"));
    model.params[1].data = &host;
    assert_int_equal(create(&model, TIMEOUT_MS, &err), -EINVAL);
    assert_non_null(strstr(err.text, "on device: cpu: 'p'"));
    model.params[1].data = right;
    assert_int_equal(cudaFree(wrong), cudaSuccess);
    end(&model);
}

static char warning[256];

static void keep_warning(void *context, enum ctrun_log_level level, const char *line)
{
    (void)ct_copy(warning, sizeof warning, line);
}

/* What is logged when the object is made. */
static void make_and_log(void)
{
    struct model model;

    warning[0] = '\0';
    ctrun_log_to(keep_warning, NULL, CTRUN_LOG_WARN);
    model = make(true);
    ctrun_log_to(NULL, NULL, CTRUN_LOG_WARN);
    end(&model);
}

TEST_AROUND(a_gpu_that_is_much_smaller_is_warned_of, begin, NULL)
{
    make_and_log();
    assert_string_equal(warning, "");
    fake_nccl.slow_device = 1;
    make_and_log();
    assert_non_null(
        strstr(warning, "GPU 1 has less than 75% of the processors of GPU 0"));
    fake_nccl.slow_device = 0;
    fake_nccl.lean_device = 2;
    make_and_log();
    assert_non_null(strstr(warning, "GPU 2 has less than 75% of the memory of GPU 0"));
}

/* The other devices do not wait until their deadline. */
TEST_AROUND(a_device_that_is_not_there_is_told_at_once, begin, NULL)
{
    static const int ids[DEVICES] = {0, 7, 1};
    struct model model = {.is_on_gpus = true};
    struct ctrun_dp_options options;
    struct ctrun_error err;

    make_params(&model);
    make_streams(&model);
    options = options_of(&model, TIMEOUT_MS);
    options.ids = ids;
    assert_int_equal(
        ctrun_dp_create_on(&model.dp, model.params, 3, DEVICES, &options, &err),
        CTRUN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "cannot use the GPU"));
    assert_null(model.dp);
    options.backend = "other";
    assert_int_equal(
        ctrun_dp_create_on(&model.dp, model.params, 3, DEVICES, &options, &err),
        -EINVAL);
    end(&model);
}

TEST_AROUND(a_device_that_hangs_is_given_up_after_the_time_out, begin, NULL)
{
    struct model model = {.is_on_gpus = true};
    struct ctrun_error err;

    make_params(&model);
    make_streams(&model);
    assert_int_equal(create(&model, TIMEOUT_MS, &err), 0);
    for (int d = 0; d < DEVICES; d++)
        model.dp->of[d].group->timeout_ms = SHORT_MS;
    fake_nccl.hangs = true;
    assert_int_equal(ctrun_dp_replicate(model.dp, DEVICES, &err), CTRUN_E_TIMEOUT);
    assert_non_null(strstr(err.text, "broadcast"));
    assert_true(ctrun_dp_reduce(model.dp, DEVICES, &err) < 0); /* it stays dead */
    end(&model);
}

/* Each call of CUDA and NCCL fails once: there is an error text, nothing is left, and no device
 * waits forever. */
TEST_AROUND(every_call_that_fails_is_told_and_leaves_nothing, begin, NULL)
{
    int n = 0, calls;

    do {
        struct model model = {.is_on_gpus = true};
        struct ctrun_error err = {.text = ""};
        int rc;

        make_params(&model);
        make_streams(&model);
        (void)fake_fail_at(++n);
        if ((rc = create(&model, TIMEOUT_MS, &err)) == 0)
            rc = try_step(&model, &err);
        calls = fake_fail_at(0);
        assert_true(rc == 0 || err.text[0]);
        assert_true(rc < 0 || n > calls || model.dp);
        end(&model);
    } while (n <= calls);
    assert_in_range(n, 50, 2000);
}

TEST_AROUND(too_little_memory_is_told_and_leaves_nothing, begin, NULL)
{
    enum {
        ALLOCATIONS = 100
    };
    int failed = 0;

    for (size_t n = 1; n <= ALLOCATIONS; n++) {
        struct model model = {.is_on_gpus = true};
        struct ctrun_error err = {.text = ""};
        int rc;

        make_params(&model);
        make_streams(&model);
        ct_alloc_fail_at(n);
        if ((rc = create(&model, TIMEOUT_MS, &err)) == 0)
            rc = try_step(&model, &err);
        ct_alloc_fail_at(0);
        assert_true(rc == 0 || err.text[0]);
        failed += rc < 0;
        end(&model);
    }
    assert_in_range(failed, 20, ALLOCATIONS - 1); /* less than ALLOCATIONS are made */
}
