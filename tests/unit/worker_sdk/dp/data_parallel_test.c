/* SPDX-License-Identifier: Apache-2.0 */
/* DataParallel: batches are split, replicas run in threads, gradients are added up. */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/half.h"

enum {
    DEVICES = 3,
    COUNT = 1000,
    SAMPLES = 10
};

static float weights[COUNT], mean;
static uint16_t half = 0x3c00; /* the number 1 */

static struct ctrun_dp *make(int devices)
{
    struct ctrun_param params[3] = {CTRUN_PARAM_INIT, CTRUN_PARAM_INIT,
                                    CTRUN_PARAM_INIT};
    struct ctrun_dp *dp;
    struct ctrun_error err;

    params[0].name = "weights";
    params[0].data = weights;
    params[0].dims = 1;
    params[0].sizes[0] = COUNT;
    params[1].name = "mean";
    params[1].data = &mean;
    params[1].no_grad = params[1].is_buffer = true;
    params[2].name = "half";
    params[2].data = &half;
    params[2].dtype = CTRUN_F16;
    for (int i = 0; i < COUNT; i++)
        weights[i] = 1.0f / (float)(i + 1);
    mean = 0.5f;
    assert_int_equal(ctrun_dp_create(&dp, params, 3, devices, &err), 0);
    return dp;
}

TEST(a_batch_is_cut_as_torch_does)
{
    static const struct {
        size_t samples;
        int devices, replicas;
        size_t counts[4];
    } cases[] = {{10, 4, 4, {3, 3, 3, 1}}, {5, 4, 3, {2, 2, 1, 0}},
                 {3, 4, 3, {1, 1, 1, 0}},  {0, 4, 0, {0, 0, 0, 0}},
                 {8, 2, 2, {4, 4}},        {7, 1, 1, {7}}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ctrun_dp *dp = make(cases[i].devices);
        size_t first, count, begin = 0;

        for (int d = 0; d < cases[i].devices; d++) {
            assert_int_equal(ctrun_dp_scatter(dp, cases[i].samples, d, &first, &count),
                             cases[i].replicas);
            assert_int_equal(count, cases[i].counts[d]);
            assert_int_equal(first, begin);
            begin += count;
        }
        assert_int_equal(begin, cases[i].samples);
        ctrun_dp_destroy(dp);
    }
}

/* The gradient of sample s is (s + 1) times the value. */
static int backward(void *context, int device, struct ctrun_error *err)
{
    struct ctrun_dp *dp = context;
    const float *value = ctrun_dp_value(dp, device, 0);
    float *grad = ctrun_dp_grad(dp, device, 0);
    uint16_t *half_grad = ctrun_dp_grad(dp, device, 2);
    size_t first, count;

    (void)ctrun_dp_scatter(dp, SAMPLES, device, &first, &count);
    for (size_t s = first; s < first + count; s++)
        for (int i = 0; i < COUNT; i++)
            grad[i] += (float)(s + 1) * value[i];
    *half_grad = ct_f16_of_float((float)count);
    return *(float *)ctrun_dp_value(dp, device, 1) == 0.5f
               ? 0
               : ct_fail(err, -EDOM, "no mean");
}

static void step(struct ctrun_dp *dp)
{
    const int replicas = ctrun_dp_scatter(dp, SAMPLES, 0, NULL, NULL);
    struct ctrun_error err;

    assert_int_equal(ctrun_dp_replicate(dp, replicas, &err), 0);
    assert_int_equal(ctrun_dp_apply(dp, replicas, backward, dp, &err), 0);
    assert_int_equal(ctrun_dp_reduce(dp, replicas, &err), 0);
}

TEST(gradients_are_the_sum_that_one_device_would_make)
{
    struct ctrun_dp *one = make(1), *some = make(DEVICES);
    const float *a = ctrun_dp_grad(one, 0, 0), *b = ctrun_dp_grad(some, 0, 0);
    float *replicas = ctrun_dp_value(some, 1, 0);

    step(one);
    step(some);
    for (int i = 0; i < COUNT; i++)
        assert_float_equal(b[i], a[i], 1e-6f * a[i]);
    assert_ptr_not_equal(replicas, weights);
    assert_memory_equal(replicas, weights, sizeof weights);
    assert_float_equal(ct_float_of_f16(*(uint16_t *)ctrun_dp_grad(some, 0, 2)), SAMPLES,
                       0);
    for (int d = 1; d < DEVICES; d++)
        for (int i = 0; i < COUNT; i++)
            assert_true(((float *)ctrun_dp_grad(some, d, 0))[i] == 0);
    step(some); /* gradients accumulate on device 0 */
    for (int i = 0; i < COUNT; i++)
        assert_float_equal(b[i], 2 * a[i], 4e-6f * a[i]);
    assert_null(ctrun_dp_grad(some, 0, 1));
    assert_null(ctrun_dp_grad(some, DEVICES, 0));
    assert_null(ctrun_dp_value(some, 0, 3));
    ctrun_dp_destroy(one);
    ctrun_dp_destroy(some);
}

TEST(the_bits_do_not_depend_on_who_was_first)
{
    struct ctrun_dp *dp = make(DEVICES);
    float *grad = ctrun_dp_grad(dp, 0, 0), before[COUNT];

    for (int i = 0; i < 20; i++) {
        step(dp);
        if (i > 0)
            assert_memory_equal(grad, before, sizeof before);
        memcpy(before, grad, sizeof before);
        memset(grad, 0, sizeof before);
    }
    ctrun_dp_destroy(dp);
}

static _Atomic int calls;

static int fail_but_on_0(void *context, int device, struct ctrun_error *err)
{
    struct ctrun_error inner = {.text = ""};

    calls++;
    if (device == 0) /* a replica must not call the object */
        assert_int_equal(ctrun_dp_reduce(context, 1, &inner), CTRUN_E_USAGE);
    if (device == 2)
        return -EIO; /* without an error text */
    return device ? ct_fail(err, -EDOM, "no luck") : 0;
}

TEST(the_first_replica_that_fails_is_named)
{
    struct ctrun_dp *dp = make(4);
    struct ctrun_error err;

    calls = 0;
    assert_int_equal(ctrun_dp_apply(dp, DEVICES, fail_but_on_0, dp, &err), -EDOM);
    assert_string_equal(err.text, "in replica 1 on device 1: no luck");
    assert_int_equal(calls, DEVICES);
    assert_int_equal(ctrun_dp_apply(dp, 5, fail_but_on_0, dp, &err), -EINVAL);
    assert_non_null(strstr(err.text, "5 replicas on 4 devices"));
    assert_int_equal(ctrun_dp_apply(dp, 0, fail_but_on_0, dp, &err), 0);
    step(dp); /* the object can still be used */
    ctrun_dp_destroy(dp);
}

/* ---- gather ----------------------------------------------------------------------------- */

TEST(pieces_become_one_tensor)
{
    float a[] = {1, 2, 3, 4}, b[] = {5, 6}, room[6];
    struct ctrun_tensor pieces[2] = {CTRUN_TENSOR_INIT, CTRUN_TENSOR_INIT};
    struct ctrun_tensor out = CTRUN_TENSOR_INIT;
    struct ctrun_error err;

    pieces[0].data = a;
    pieces[1].data = b;
    assert_int_equal(ctrun_dp_gather(pieces, 2, room, sizeof room, &out, &err), 0);
    assert_true(out.dims == 1 && out.sizes[0] == 2); /* the result is a vector */
    assert_true(room[0] == 1 && room[1] == 5 && out.data == room);
    pieces[0].dims = pieces[1].dims = 2;
    pieces[0].sizes[0] = pieces[0].sizes[1] = 2;
    pieces[1].sizes[0] = 1;
    pieces[1].sizes[1] = 2;
    assert_int_equal(ctrun_dp_gather(pieces, 2, room, sizeof room, &out, &err), 0);
    assert_true(out.dims == 2 && out.sizes[0] == 3 && out.sizes[1] == 2);
    assert_memory_equal(room, ((const float[]){1, 2, 3, 4, 5, 6}), sizeof room);
    assert_int_equal(ctrun_dp_gather(pieces, 2, room, sizeof room - 1, &out, &err),
                     -ENOSPC);
    assert_int_equal(ctrun_dp_gather(pieces, 2, NULL, sizeof room, &out, &err),
                     -EINVAL);
    pieces[1].sizes[1] = 1;
    assert_int_equal(ctrun_dp_gather(pieces, 2, room, sizeof room, &out, &err),
                     CTRUN_E_MISMATCH);
    assert_non_null(strstr(err.text, "replica 1"));
    pieces[1].sizes[0] = INT64_MAX;
    assert_int_equal(ctrun_dp_gather(pieces, 2, room, sizeof room, &out, &err),
                     -EINVAL);
    assert_int_equal(ctrun_dp_gather(pieces, 0, room, sizeof room, &out, &err),
                     -EINVAL);
}

/* ---- Bad input and no memory ------------------------------------------------------------ */

TEST(bad_input_is_refused)
{
    struct ctrun_param param = CTRUN_PARAM_INIT;
    struct ctrun_dp *dp;
    struct ctrun_error err;

    assert_int_equal(ctrun_dp_create(&dp, &param, 1, 2, &err), -EINVAL);
    assert_non_null(strstr(err.text, "data parallel: params[0] has no name"));
    param.name = "a";
    param.data = &mean;
    assert_int_equal(ctrun_dp_create(&dp, &param, 1, 0, &err), -EINVAL);
    assert_int_equal(ctrun_dp_create(&dp, &param, 1, 1025, &err), -EINVAL);
    param.dims = 1;
    param.sizes[0] = INT64_MAX / 8;
    assert_int_equal(ctrun_dp_create(&dp, &param, 1, 2, &err), -EINVAL);
    assert_non_null(strstr(err.text, "too large"));
    assert_null(dp);
    param.size = 1;
    assert_int_equal(ctrun_dp_create(&dp, &param, 1, 2, &err), -EINVAL);
    assert_int_equal(ctrun_dp_create(&dp, NULL, 0, 2, &err), 0);
    assert_int_equal(ctrun_dp_apply(dp, 1, NULL, NULL, &err), -EINVAL);
    ctrun_dp_destroy(dp);
    ctrun_dp_destroy(NULL);
}

TEST(too_little_memory_is_told_and_leaves_nothing)
{
    struct ctrun_param param = CTRUN_PARAM_INIT;
    struct ctrun_dp *dp;
    struct ctrun_error err;
    size_t n = 0;
    int rc;

    param.name = "a";
    param.data = &mean;
    do {
        ct_alloc_fail_at(++n);
        rc = ctrun_dp_create(&dp, &param, 1, 2, &err);
        ct_alloc_fail_at(0);
        assert_true(rc == 0 || (rc == -ENOMEM && !dp && err.text[0]));
    } while (rc < 0);
    assert_in_range(n, 9, 20);
    ctrun_dp_destroy(dp);
}
