/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL plug-in over a scripted libnccl (tests/lib/fake_nccl.h): what it waits for, when it
 * gives up, and that nothing is left then. */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/base/half.h"
#include "worker_sdk/comm/comm.h"
#include "worker_sdk/comm/group_private.h"

/* Codes of nccl.h that the script returns. */
enum {
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    SHORT_MS = 100,
    LARGE = 1 << 20, /* bytes of memory that NCCL allocates */
    LATE_US = 3000,
    LATE_STEPS =
        30, /* what does not wait for a stream that is so late comes before it */
};

static int begin(void **state)
{
    fake_nccl_use((struct fake_nccl){0});
    return 0;
}

static int open_group(struct ctrun_group **out, uint64_t timeout_ms,
                      struct ctrun_error *err)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    _Atomic uint64_t sequence = 0;
    const struct ct_group_place place = {.world_size = 1, .sequence = &sequence};

    options.backend = "nccl";
    options.timeout_ms = timeout_ms;
    return ct_group_open(out, &place, &options, err);
}

static struct ctrun_group *open_good(uint64_t timeout_ms)
{
    struct ctrun_group *group;
    struct ctrun_error err = {.text = ""};

    if (open_group(&group, 30000, &err) != 0)
        fail_msg("%s", err.text);
    group->timeout_ms = timeout_ms;
    return group;
}

static void expect(int rc, int want, const struct ctrun_error *err, const char *word)
{
    if (rc != want || !strstr(err->text, word))
        fail_msg("wanted %d with '%s', got %d: %s", want, word, rc, err->text);
}

static void expect_nothing_left(int aborts, int destroys)
{
    if (!fake_counts())
        return;
    assert_int_equal(fake_nccl.blocks, 0);
    assert_int_equal(fake_nccl.aborts, aborts);
    assert_int_equal(fake_nccl.destroys, destroys);
}

static int reduce(struct ctrun_group *group, struct ctrun_error *err)
{
    static float data[4];

    return ctrun_all_reduce(group, data, data, 4, CTRUN_F32, CTRUN_SUM, NULL, err);
}

/* ---- Opening ---------------------------------------------------------------------------- */

TEST_AROUND(opening_waits_while_init_is_in_progress, begin, NULL)
{
    struct ctrun_group *group;
    struct ctrun_error err;

    fake_nccl.init_polls = 20;
    group = open_good(30000);
    assert_int_equal(reduce(group, &err), 0);
    assert_int_equal(fake_nccl.calls, 1);
    ctrun_group_close(group);
    expect_nothing_left(0, 1);
}

TEST_AROUND(an_init_that_hangs_ends_at_the_deadline, begin, NULL)
{
    struct ctrun_group *group;
    struct ctrun_error err;

    fake_nccl.init_polls = -1;
    expect(open_group(&group, SHORT_MS, &err), CTRUN_E_TIMEOUT, &err, "open");
    assert_null(group);
    expect_nothing_left(1, 0);
}

TEST_AROUND(an_init_that_is_refused_is_an_error, begin, NULL)
{
    struct ctrun_group *group;
    struct ctrun_error err;

    fake_nccl.refuse_init = NCCL_INVALID_USAGE;
    expect(open_group(&group, 30000, &err), -EINVAL, &err, "a fake NCCL error");
    expect_nothing_left(0, 0);
}

TEST_AROUND(an_error_while_init_goes_on_is_an_error, begin, NULL)
{
    struct ctrun_group *group;
    struct ctrun_error err;

    fake_nccl.init_polls = -1;
    fake_nccl.async_error = NCCL_REMOTE_ERROR;
    expect(open_group(&group, 30000, &err), CTRUN_E_PEER_LOST, &err, "fake peer");
    expect_nothing_left(1, 0);
}

TEST_AROUND(an_old_library_is_refused, begin, NULL)
{
    struct ctrun_group *group;
    struct ctrun_error err;

    fake_nccl.version = 21700;
    expect(open_group(&group, 30000, &err), CTRUN_E_UNSUPPORTED, &err, "21700");
    expect_nothing_left(0, 0);
}

TEST_AROUND(a_machine_without_a_gpu_is_told_so, begin, NULL)
{
    struct ctrun_group *group;
    struct ctrun_error err;

    fake_nccl.no_device = true;
    expect(open_group(&group, 30000, &err), CTRUN_E_UNSUPPORTED, &err,
           "cannot use the GPU: no fake device");
    expect_nothing_left(0, 0);
}

static int take_value(void *context, const char *key, const void *value, size_t length,
                      uint64_t deadline_ms, struct ctrun_error *err)
{
    return 0;
}

static int lose_peer(void *context, const char *key, void **value, size_t *length,
                     uint64_t deadline_ms, struct ctrun_error *err)
{
    return ct_fail(err, CTRUN_E_PEER_LOST, "rank 0 is lost");
}

/* With the error's text and without it. */
TEST_AROUND(a_failure_to_meet_has_the_same_code_for_who_wants_no_text, begin, NULL)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_error err;
    struct ctrun_group *group;

    options.backend = "nccl";
    for (int i = 0; i < 4; i++) {
        const struct ct_group_place place = {
            .rank = i / 2,
            .world_size = 2,
            .key = "group",
            .bootstrap = {.set = take_value, .get = lose_peer}};

        assert_int_equal(ct_group_open(&group, &place, &options, i % 2 ? NULL : &err),
                         CTRUN_E_PEER_LOST);
    }
    expect_nothing_left(0, 0);
}

/* ---- Calls ------------------------------------------------------------------------------ */

TEST_AROUND(calls_wait_for_communicator_and_device, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);
    int32_t in[3] = {1, 2, 3};
    int32_t out[3] = {0};
    struct ctrun_error err;

    fake_nccl.call_polls = 5;
    fake_nccl.late_us = 500;
    assert_int_equal(ctrun_all_gather(group, in, out, 3, CTRUN_I32, NULL, &err), 0);
    assert_memory_equal(in, out, sizeof in);
    assert_int_equal(ctrun_broadcast(group, out, out, 3, CTRUN_I32, 0, NULL, &err), 0);
    assert_int_equal(ctrun_barrier(group, NULL, &err), 0);
    assert_int_equal(fake_nccl.calls, 3);
    ctrun_group_close(group);
    expect_nothing_left(0, 1);
}

/* After a failure the group stays dead: it always returns the same error, has aborted once, and
 * makes no more calls. */
static void expect_dead(struct ctrun_group *group, int code, const char *word)
{
    struct ctrun_error err;
    int calls = fake_nccl.calls;

    expect(reduce(group, &err), code, &err, word);
    assert_int_equal(fake_nccl.calls, calls);
    ctrun_group_close(group);
    expect_nothing_left(1, 0);
}

TEST_AROUND(a_call_that_hangs_on_the_device_ends_at_the_deadline, begin, NULL)
{
    struct ctrun_group *group = open_good(SHORT_MS);
    struct ctrun_error err;

    fake_nccl.hangs = true;
    expect(reduce(group, &err), CTRUN_E_TIMEOUT, &err, "missing or stuck");
    expect_dead(group, CTRUN_E_TIMEOUT, "missing or stuck");
}

TEST_AROUND(a_call_that_never_gets_to_the_device_ends_at_the_deadline, begin, NULL)
{
    struct ctrun_group *group = open_good(SHORT_MS);
    struct ctrun_error err;

    fake_nccl.call_polls = -1;
    expect(reduce(group, &err), CTRUN_E_TIMEOUT, &err, "did not finish in time");
    expect_dead(group, CTRUN_E_TIMEOUT, "did not finish in time");
}

static struct ctrun_work *start_hanging(struct ctrun_group *group)
{
    static float data[4];
    struct ctrun_work *work;
    struct ctrun_error err;

    fake_nccl.hangs = true;
    assert_int_equal(ctrun_all_reduce(group, data, data, 4, CTRUN_F32, CTRUN_SUM,
                                      IN_BACKGROUND(&work), &err),
                     0);
    return work;
}

TEST_AROUND(an_asynchronous_error_ends_a_call_that_hangs, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);
    struct ctrun_work *work = start_hanging(group);
    struct ctrun_error err;

    fake_nccl.async_error = NCCL_REMOTE_ERROR;
    expect(ctrun_work_wait(work, &err), CTRUN_E_PEER_LOST, &err, "fake peer");
    expect_dead(group, CTRUN_E_PEER_LOST, "fake peer");
}

TEST_AROUND(a_call_that_is_refused_kills_the_group, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);
    struct ctrun_error err;

    fake_nccl.refuse_call = NCCL_SYSTEM_ERROR;
    expect(reduce(group, &err), -EIO, &err, "a fake NCCL error");
    expect_dead(group, -EIO, "a fake NCCL error");
}

static void *abort_group(void *context)
{
    ctrun_group_abort(context);
    return NULL;
}

TEST_AROUND(another_thread_can_abort_a_call_that_hangs, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);
    struct ctrun_work *work;
    static float data[4];
    struct ctrun_error err;
    pthread_t thread;

    fake_nccl.hangs = true;
    assert_int_equal(ctrun_all_reduce(group, data, data, 4, CTRUN_F32, CTRUN_SUM,
                                      IN_BACKGROUND(&work), &err),
                     0);
    assert_int_equal(pthread_create(&thread, NULL, abort_group, group), 0);
    expect(ctrun_work_wait(work, &err), CTRUN_E_ABORTED, &err, "rank 0 aborted");
    assert_int_equal(pthread_join(thread, NULL), 0);
    expect_dead(group, CTRUN_E_ABORTED, "rank 0 aborted");
}

/* ---- Memory and closing ----------------------------------------------------------------- */

TEST_AROUND(memory_is_zeroed_and_freed_with_the_group, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);
    static const unsigned char zero[64];
    struct ctrun_error err;
    void *block;

    assert_int_equal(ctrun_group_alloc(group, sizeof zero, &block, &err), 0);
    assert_memory_equal(fake_device(block), zero, sizeof zero);
    fake_nccl.no_memory = true;
    expect(ctrun_group_alloc(group, 2 << 20, &block, &err), -ENOMEM, &err,
           "group alloc");
    assert_null(block);
    ctrun_group_close(group);
    expect_nothing_left(0, 1);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void pass_gate(void *context)
{
    (void)context;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
}

/* The default stream has other work, for which no other stream waits. */
TEST_AROUND(memory_is_zero_when_the_call_returns, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);
    struct ctrun_error err;
    bool is_zero[2];
    void *at;

    fake_nccl.late_us = LATE_US;
    pthread_mutex_lock(&gate);
    fake_launch(NULL, pass_gate, NULL);
    for (int i = 0; i < 2; i++) { /* of CUDA, and of NCCL */
        const size_t bytes = i ? LARGE : 64;

        assert_int_equal(ctrun_group_alloc(group, bytes, &at, &err), 0);
        is_zero[i] = ((char *)fake_device(at))[0] == 0 &&
                     ((char *)fake_device(at))[bytes - 1] == 0;
    }
    pthread_mutex_unlock(&gate);
    assert_true(is_zero[0] && is_zero[1]);
    ctrun_group_close(group);
    expect_nothing_left(0, 1);
}

TEST_AROUND(memory_behind_a_call_that_hangs_ends_at_the_deadline, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);
    struct ctrun_error err;
    struct ctrun_work *work = start_hanging(group);
    void *at;

    group->timeout_ms = SHORT_MS;
    expect(ctrun_group_alloc(group, LARGE, &at, &err), CTRUN_E_TIMEOUT, &err,
           "the calls before it");
    expect(ctrun_work_wait(work, &err), CTRUN_E_TIMEOUT, &err, "the calls before it");
    ctrun_group_close(group);
    expect_nothing_left(1, 0);
}

TEST_AROUND(memory_behind_a_call_of_a_lost_rank_says_so, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);
    struct ctrun_work *work = start_hanging(group);
    struct ctrun_error err;
    void *at;

    fake_nccl.async_error = NCCL_REMOTE_ERROR;
    expect(ctrun_group_alloc(group, 64, &at, &err), CTRUN_E_PEER_LOST, &err,
           "fake peer");
    expect(ctrun_work_wait(work, &err), CTRUN_E_PEER_LOST, &err, "fake peer");
    expect_dead(group, CTRUN_E_PEER_LOST, "fake peer");
}

/* A copy of the old group is still to come when the new one copies to the same place. */
TEST_AROUND(a_shrunk_group_comes_behind_what_the_old_one_still_does, begin, NULL)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_group *old = open_good(30000), *next;
    const int rank = 0;
    const struct ct_group_place place = {
        .world_size = 1, .ranks = &rank, .rank_count = 1, .epoch = 1};
    cudaStream_t late, stream;
    struct ctrun_error err;
    float *at;

    options.backend = "nccl";
    assert_int_equal(cudaStreamCreateWithFlags(&late, cudaStreamNonBlocking), 0);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), 0);
    assert_int_equal(cudaMalloc((void **)&at, 3 * sizeof *at), 0);
    for (int i = 0; i < 3; i++)
        *(float *)fake_device(at + i) = (float)i;
    fake_nccl.late_us = LATE_US;
    pthread_mutex_lock(&gate);
    fake_launch(late, pass_gate, NULL);
    fake_delay(late, LATE_STEPS);
    assert_int_equal(ct_group_copy_behind(old, at, at + 1, sizeof *at, late, &err), 0);
    ct_group_end(old, CTRUN_E_ABORTED, "a rank is lost");
    assert_int_equal(ct_group_shrink(&next, &place, old, &options, &err), 0);
    assert_int_equal(ct_group_copy_behind(next, at, at + 2, sizeof *at, stream, &err),
                     0);
    pthread_mutex_unlock(&gate);
    ctrun_group_close(old);
    ctrun_group_close(next);
    assert_true(*(float *)fake_device(at) == 2);
    assert_int_equal(cudaFree(at), 0);
    assert_int_equal(cudaStreamDestroy(late), 0);
    assert_int_equal(cudaStreamDestroy(stream), 0);
    expect_nothing_left(1, 1);
}

TEST_AROUND(memory_may_be_freed_before, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);
    struct ctrun_error err;
    void *first, *second;
    int before;

    before = fake_nccl.blocks;
    assert_int_equal(ctrun_group_alloc(group, 64, &first, &err), 0);
    assert_int_equal(ctrun_group_alloc(group, 64, &second, &err), 0);
    expect(ctrun_group_free(group, (char *)second + 1, &err), -EINVAL, &err,
           "is not the beginning of memory of this group");
    assert_int_equal(ctrun_group_free(group, first, &err), 0);
    assert_int_equal(fake_nccl.blocks, before + 1);
    assert_int_equal(ctrun_group_free(group, first, &err), -EINVAL);
    fake_nccl.hangs = true; /* also after the group has failed */
    fake_nccl.refuse_call = NCCL_SYSTEM_ERROR;
    assert_int_equal(reduce(group, &err), -EIO);
    assert_int_equal(ctrun_group_free(group, second, &err), 0);
    assert_int_equal(ctrun_group_free(group, NULL, &err), 0);
    ctrun_group_close(group);
    expect_nothing_left(1, 0);
}

TEST_AROUND(large_memory_is_nccls_and_registered, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);
    struct ctrun_error err;
    void *small, *large, *other;

    assert_int_equal(ctrun_group_alloc(group, 64, &small, &err), 0);
    assert_int_equal(fake_nccl.registered, 0);
    assert_int_equal(ctrun_group_alloc(group, LARGE, &large, &err), 0);
    assert_int_equal(((char *)fake_device(large))[LARGE - 1], 0);
    assert_int_equal(ctrun_group_alloc(group, LARGE, &other, &err), 0);
    assert_int_equal(fake_nccl.registered, 2);
    assert_int_equal(ctrun_group_free(group, large, &err), 0);
    assert_int_equal(fake_nccl.registered, 1);
    fake_nccl.refuse_register = NCCL_SYSTEM_ERROR;
    expect(ctrun_group_alloc(group, LARGE, &large, &err), -EIO, &err, "register");
    assert_int_equal(reduce(group, &err), 0); /* the group still works */
    ctrun_group_close(group);
    assert_int_equal(fake_nccl.registered, 0);
    expect_nothing_left(0, 1);
}

TEST_AROUND(an_older_nccl_has_memory_of_cuda, begin, NULL)
{
    struct ctrun_group *group;
    struct ctrun_error err;
    void *large;

    fake_nccl.version = 21800;
    group = open_good(30000);
    assert_int_equal(ctrun_group_alloc(group, LARGE, &large, &err), 0);
    assert_int_equal(fake_nccl.registered, 0);
    ctrun_group_close(group);
    expect_nothing_left(0, 1);
}

/* ---- Kernels ---------------------------------------------------------------------------- */

enum {
    HALVES = 1 << 16
};

/* Numbers at the limits of rounding, and others. */
static float strange(uint32_t i)
{
    static const uint32_t bits[] = {0x477fefff, 0x477ff000, 0x38800000, 0x387fffff,
                                    0x33000000, 0x33000001, 0x3f808000, 0x3f818000,
                                    0x7f7fffff, 0x7f800000, 0x00000001, 0x80000000};

    return ct_float_of_bits(i < sizeof bits / sizeof *bits ? bits[i] : i * 2654435761u);
}

static void run(struct ctrun_group *group, enum ct_device_kernel kernel, void *a,
                void *b, double by)
{
    const struct ct_device_args args = {.a = a, .b = b, .n = HALVES, .by = by};
    struct ctrun_error err;

    if (ct_group_compute(group, kernel, &args, NULL, &err) < 0)
        fail_msg("kernel %d: %s", (int)kernel, err.text);
    assert_int_equal(ctrun_barrier(group, NULL, &err), 0);
}

static void copy(struct ctrun_group *group, void *to, const void *from, size_t bytes)
{
    struct ctrun_error err;

    if (ct_group_copy(group, to, from, bytes, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

/* Equal bits, or two NaNs: a GPU has only one NaN of f16, the host keeps a NaN's bits. `infinity`: without sign. */
static void assert_same_bits(uint32_t a, uint32_t b, uint32_t sign, uint32_t infinity)
{
    if ((a & ~sign) <= infinity || (b & ~sign) <= infinity)
        assert_int_equal(a, b);
}

TEST_AROUND(kernels_convert_as_the_host_does, begin, NULL)
{
    /* They are interpreted, which is slow. */
    struct ctrun_group *group = open_good(300000);
    const int waits = fake_nccl.device_waits;
    static uint16_t halves[HALVES];
    static float floats[HALVES];
    struct ctrun_error err;
    void *a, *b;

    assert_int_equal(ctrun_group_alloc(group, sizeof floats, &a, &err), 0);
    assert_int_equal(ctrun_group_alloc(group, sizeof halves, &b, &err), 0);
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        for (uint32_t i = 0; i < HALVES; i++)
            floats[i] = strange(i);
        copy(group, a, floats, sizeof floats);
        run(group, is_bf16 ? CT_DEVICE_TO_BF16 : CT_DEVICE_TO_F16, a, b, 0);
        copy(group, halves, b, sizeof halves);
        for (uint32_t i = 0; i < HALVES; i++)
            assert_same_bits(halves[i],
                             is_bf16 ? ct_bf16_of_float(strange(i))
                                     : ct_f16_of_float(strange(i)),
                             0x8000, is_bf16 ? 0x7f80 : 0x7c00);
        for (uint32_t i = 0; i < HALVES; i++)
            halves[i] = (uint16_t)i;
        copy(group, b, halves, sizeof halves);
        run(group, is_bf16 ? CT_DEVICE_FROM_BF16 : CT_DEVICE_FROM_F16, b, a, 0);
        copy(group, floats, a, sizeof floats);
        for (uint32_t i = 0; i < HALVES; i++)
            assert_same_bits(ct_bits_of_float(floats[i]),
                             ct_bits_of_float(is_bf16 ? ct_float_of_bf16((uint16_t)i)
                                                      : ct_float_of_f16((uint16_t)i)),
                             0x80000000, 0x7f800000);
    }
    for (uint32_t i = 0; i < HALVES; i++)
        floats[i] = strange(i);
    copy(group, a, floats, sizeof floats);
    run(group, CT_DEVICE_SCALE_F32, a, NULL, 1.0 / 3);
    copy(group, floats, a, sizeof floats);
    for (uint32_t i = 0; i < HALVES; i++)
        assert_true(floats[i] == (float)((double)strange(i) / 3) || /* NaN: any */
                    !(strange(i) == strange(i)) ||
                    floats[i] == (float)((double)strange(i) * (1.0 / 3)));
    /* To load a kernel may take a wait for the device: that was done at the opening. */
    assert_int_equal(fake_nccl.device_waits, waits);
    ctrun_group_close(group);
    expect_nothing_left(0, 1);
}

TEST_AROUND(a_close_that_cannot_finish_aborts, begin, NULL)
{
    struct ctrun_group *group = open_good(30000);

    fake_nccl.finalize_code = NCCL_SYSTEM_ERROR;
    ctrun_group_close(group);
    expect_nothing_left(1, 0);
}
