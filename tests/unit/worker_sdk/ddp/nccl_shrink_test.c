/* SPDX-License-Identifier: Apache-2.0 */
/* DDP on an NCCL group that loses a rank, over the fake of tests/lib/fake_nccl.h. The other ranks
 * continue with a communicator that NCCL has made of the old one, or with a new one, and get the
 * bits of the host back end. */
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/ranks.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/error.h"
#include "worker_sdk/comm/nccl/nccl_api.h"

enum {
    RANKS = 3,
    LOST = 1,  /* the rank that dies */
    THERE = 2, /* counter: ranks that have reached the place of the death */
    TOLD = 3,  /* counter: the death was reported */
    PARAMS = 2,
    COUNT = 20000, /* floats of each parameter: large enough for memory of NCCL */
    BYTES = COUNT * sizeof(float),
    STEPS = 5,
    DEATH = 2, /* the step in which it dies */
    TIMEOUT_MS = 60000,
    SHRINK_NCCL = 22703,
};

static const int left[] = {0, 2};

/* Shared by all ranks and the parent: the number of losses that an agent would report. */
static struct {
    _Atomic uint32_t losses;
    /* Of rank 0 at the end: on the host, on the device. */
    float values[2][PARAMS][COUNT];
} * shared;

static int look(void *context, uint32_t losses, bool leaves_node,
                struct ctrun_error *err)
{
    return losses < shared->losses ? ct_fail(err, CTRUN_E_PEER_LOST, "a rank is lost")
                                   : 0;
}

static int begin(void **state)
{
    fake_nccl_use((struct fake_nccl){0});
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? -1 : 0;
}

static int end(void **state)
{
    return munmap(shared, sizeof *shared);
}

struct job {
    bool is_device;
    bool is_there;
    int rank;
    struct ct_group_place place;
    struct ctrun_group *group;
    struct ctrun_ddp *ddp;
    cudaStream_t stream;
    float *values[PARAMS]; /* of the host, or of the device */
    float host[PARAMS][COUNT];
    float grads[PARAMS][COUNT];
};

/* A second try, if the first one was the call that must fail. */
static void copy(const struct job *job, void *to, const void *from)
{
    cudaError_t code = cudaErrorUnknown;

    for (int i = 0; job->is_device && code != cudaSuccess && i < 2; i++)
        code = cudaMemcpyAsync(to, from, BYTES, cudaMemcpyDefault, job->stream);
    CHECK(!job->is_device || code == cudaSuccess);
    if (!job->is_device)
        memcpy(to, from, BYTES);
}

static void finish(const struct job *job)
{
    CHECK(!job->is_device || cudaStreamSynchronize(job->stream) == cudaSuccess);
}

static int open_ddp(struct job *job, struct ctrun_error *err)
{
    struct ctrun_ddp_options options = CTRUN_DDP_OPTIONS_INIT;
    struct ctrun_param params[PARAMS] = {CTRUN_PARAM_INIT, CTRUN_PARAM_INIT};

    for (int p = 0; p < PARAMS; p++) {
        params[p].name = p ? "b" : "a";
        params[p].data = job->values[p];
        params[p].dims = 1;
        params[p].sizes[0] = COUNT;
    }
    options.first_bucket_bytes = options.bucket_cap_bytes = BYTES; /* one each */
    return ctrun_ddp_create(&job->ddp, job->group, params, PARAMS, &options, err);
}

static struct job *open_job(int rank, bool is_device)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct job *job = calloc(1, sizeof *job);
    struct ctrun_error err;

    CHECK(job);
    job->is_device = is_device;
    job->rank = rank;
    options.backend = is_device ? "nccl" : "host";
    options.timeout_ms = TIMEOUT_MS;
    job->place = ranks_place(rank, NULL);
    job->place.losses = (struct ct_loss_watch){.check = look, .sees_ranks = true};
    CHECK_OK(ct_group_open(&job->group, &job->place, &options, &err));
    if (is_device)
        CHECK(cudaStreamCreateWithFlags(&job->stream, cudaStreamNonBlocking) ==
              cudaSuccess);
    for (int p = 0; p < PARAMS; p++) {
        job->values[p] = job->host[p];
        for (int i = 0; i < COUNT; i++)
            job->host[p][i] = 1.0f / (float)(i + 1 + p);
        if (!is_device)
            continue;
        CHECK(cudaMalloc((void **)&job->values[p], BYTES) == cudaSuccess);
        copy(job, job->values[p], job->host[p]);
    }
    finish(job);
    CHECK_OK(open_ddp(job, &err));
    return job;
}

static void close_job(struct job *job)
{
    ctrun_ddp_destroy(job->ddp);
    ctrun_group_close(job->group);
    for (int p = 0; job->is_device && p < PARAMS; p++)
        CHECK(cudaFree(job->values[p]) == cudaSuccess);
    if (job->is_device)
        CHECK(cudaStreamDestroy(job->stream) == cudaSuccess);
    free(job);
    CHECK(fake_nccl.blocks == 0 && fake_nccl.registered == 0);
}

static void make_gradient(struct job *job, int p, int step)
{
    for (int i = 0; i < COUNT; i++)
        job->grads[p][i] = job->host[p][i] * 0.37f +
                           (float)((job->rank + 1) * (i % 7 + 1)) / (float)(step + 3);
    copy(job, ctrun_ddp_grad(job->ddp, (size_t)p), job->grads[p]);
}

/* From here on no step can succeed: the calls of this rank wait for the lost one. */
static void tell_there(struct job *job)
{
    if (!job->is_there)
        ranks_signal(THERE);
    job->is_there = true;
}

static _Noreturn void await_death(struct job *job)
{
    tell_there(job);
    for (;;)
        pause();
}

/* If it fails, the values are unchanged. */
static int train(struct job *job, int step, bool one_dies, struct ctrun_error *err)
{
    int rc;

    if ((rc = ctrun_ddp_forward_begin(job->ddp, err)) < 0 ||
        (rc = ctrun_ddp_backward_begin(job->ddp, NULL, err)) < 0)
        return rc;
    for (int p = PARAMS - 1; p >= 0; p--) {
        if (one_dies && p == 0 && job->rank == LOST)
            await_death(job); /* the others wait for the sum of this parameter */
        make_gradient(job, p, step);
        if ((rc = ctrun_ddp_grad_ready(job->ddp, (size_t)p, job->stream, err)) < 0)
            return rc;
    }
    if (one_dies)
        tell_there(job);
    if ((rc = ctrun_ddp_backward_end(job->ddp, job->stream, err)) < 0)
        return rc;
    for (int p = 0; p < PARAMS; p++)
        copy(job, job->grads[p], ctrun_ddp_grad(job->ddp, (size_t)p));
    finish(job); /* on the device a failed step ends, too */
    if ((rc = ctrun_barrier(job->group, NULL, err)) < 0)
        return rc;
    for (int p = 0; p < PARAMS; p++) {
        for (int i = 0; i < COUNT; i++)
            job->host[p][i] -= 0.1f * job->grads[p][i];
        if (job->is_device)
            copy(job, job->values[p], job->host[p]);
    }
    finish(job);
    return 0;
}

static int shrink(struct job *job, struct ctrun_error *err)
{
    struct ctrun_group *next;
    int rc;

    /* Its memory is registered with a communicator that is stopped. */
    ctrun_ddp_destroy(job->ddp);
    job->ddp = NULL;
    job->place.ranks = left;
    job->place.rank_count = RANKS - 1;
    job->place.epoch = job->place.losses.losses = 1;
    rc = ct_group_shrink(&next, &job->place, job->group, NULL, err);
    ctrun_group_close(job->group);
    job->group = next;
    return rc < 0 ? rc : open_ddp(job, err);
}

/* Ranks whose step failed make it again, with those that are left. */
static void train_on(int rank, bool is_device)
{
    struct job *job = open_job(rank, is_device);
    struct ctrun_error err = {.text = ""};

    for (int step = 0; step < STEPS; step++) {
        int rc = train(job, step, step == DEATH, &err);

        CHECK((rc == CTRUN_E_PEER_LOST) == (step == DEATH));
        if (rc == 0)
            continue;
        CHECK_OK(shrink(job, &err));
        CHECK_OK(train(job, step, false, &err));
    }
    CHECK(ctrun_group_size(job->group) == RANKS - 1);
    CHECK(ctrun_group_rank(job->group) == rank / 2);
    if (rank == 0)
        memcpy(shared->values[is_device], job->host, sizeof job->host);
    close_job(job);
}

struct way {
    bool is_device;
    int version;
    bool has_one; /* the rank `who` cannot revoke */
    int who;
    int shrinks, revokes;
};

static int lives_on(int rank, void *context)
{
    const struct way *way = context;

    fake_nccl.version = way->version;
    if (way->has_one && rank == way->who)
        fake_nccl.refuse_revoke = ncclSystemError;
    fake_nccl.late_us = 20;
    train_on(rank, way->is_device);
    CHECK(!fake_counts() || fake_nccl.shrinks == way->shrinks);
    CHECK(!fake_counts() ||
          fake_nccl.revokes == (way->has_one && rank == way->who ? 0 : way->revokes));
    return 0;
}

/* Kills the rank when all are there. The loss is reported after that. */
static void lose_one(ranks_fn *body, void *context, int statuses[RANKS])
{
    struct ranks *ranks;

    shared->losses = 0;
    ranks = ranks_start(RANKS, body, context);
    ranks_await(THERE, RANKS);
    kill(ranks_pid(ranks, LOST), SIGKILL);
    shared->losses = 1;
    ranks_signal(TOLD);
    (void)ranks_finish(ranks, statuses);
    assert_int_equal(statuses[LOST], SIGKILL);
}

static void live_on(struct way way)
{
    int statuses[RANKS];

    lose_one(lives_on, &way, statuses);
    assert_int_equal(statuses[0], 0);
    assert_int_equal(statuses[2], 0);
}

TEST_AROUND(after_a_kill_it_goes_on_with_the_bits_of_the_host, begin, end)
{
    live_on((struct way){.is_device = false});
    live_on((struct way){.is_device = true, .shrinks = 1, .revokes = 1});
    if (fake_counts())
        assert_memory_equal(shared->values[0], shared->values[1],
                            sizeof shared->values[0]);
    /* The real NCCL adds up three ranks in an order of its own. */
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < COUNT; i++)
            assert_float_equal(shared->values[0][p][i], shared->values[1][p][i], 1e-6);
}

TEST_AROUND(an_older_nccl_makes_a_new_communicator, begin, end)
{
    live_on((struct way){.is_device = true, .version = 22602});
    /* An older version that must abort at once does not shrink. */
    live_on((struct way){.is_device = true, .version = SHRINK_NCCL});
}

TEST_AROUND(all_make_a_new_one_if_one_of_them_has_to, begin, end)
{
    for (int rank = 0; rank < RANKS; rank += 2) /* rank 0 decides for all */
        live_on((struct way){
            .is_device = true, .has_one = true, .who = rank, .revokes = 1});
}

/* ---- Nothing runs ------------------------------------------------------------------------ */

static int waits_for_none(int rank, void *context)
{
    struct job *job;
    struct ctrun_error err = {.text = ""};

    fake_nccl.version = SHRINK_NCCL;
    job = open_job(rank, true);
    CHECK_OK(train(job, 0, false, &err));
    tell_there(job);
    if (rank == LOST)
        await_death(job);
    ranks_await(TOLD, 1);
    ct_group_end(job->group, CTRUN_E_PEER_LOST, "rank 1 is lost");
    CHECK_OK(shrink(job, &err));
    CHECK_OK(train(job, 1, false, &err));
    close_job(job);
    CHECK(!fake_counts() || (fake_nccl.shrinks == 1 && fake_nccl.revokes == 0));
    return 0;
}

TEST_AROUND(between_steps_it_shrinks_where_nothing_can_be_revoked, begin, end)
{
    int statuses[RANKS];

    lose_one(waits_for_none, NULL, statuses);
    assert_int_equal(statuses[0], 0);
    assert_int_equal(statuses[2], 0);
}

/* ---- The loss is reported within a call --------------------------------------------------- */

static struct {
    struct ctrun_group *group;
    /* Calls of cudaEventRecord(), and the one in which the loss is reported. */
    int records, at;
} told;

static void send_loss(void)
{
    if (++told.records == told.at)
        ct_group_end(told.group, CTRUN_E_PEER_LOST, "rank 1 is lost");
}

/* No other rank makes the call: only an abort ends what is on the stream. */
static int hears_within_a_call(int rank, void *context)
{
    const int *at = context;
    struct job *job;
    struct ctrun_error err = {.text = ""};

    fake_nccl.version = SHRINK_NCCL;
    job = open_job(rank, true);
    CHECK_OK(train(job, 0, false, &err)); /* so that old events have fired */
    told.group = job->group;
    told.at = *at;
    if (rank == 0) {
        fake_nccl.on_record = send_loss;
        CHECK(ctrun_barrier(job->group, NULL, &err) == CTRUN_E_PEER_LOST);
        CHECK(told.records >= *at);
        ranks_signal(TOLD);
    } else {
        ranks_await(TOLD, 1);
        ct_group_end(job->group, CTRUN_E_PEER_LOST, "rank 1 is lost");
    }
    CHECK(fake_nccl.aborts == (rank == 0));
    close_job(job);
    return 0;
}

TEST_AROUND(a_call_that_hears_of_the_loss_before_or_behind_its_launch_ends, begin, end)
{
    int statuses[RANKS];

    for (int at = 1; at <= 2; at++) {
        (void)ranks_finish(ranks_start(RANKS, hears_within_a_call, &at), statuses);
        for (int rank = 0; rank < RANKS; rank++)
            assert_int_equal(statuses[rank], 0);
    }
}

/* ---- The loss is reported within a close --------------------------------------------------- */

/* How often the group may still ask before a rank is lost. */
static _Atomic int looks = INT_MAX;

static int look_often(void *context, uint32_t losses, bool leaves_node,
                      struct ctrun_error *err)
{
    return looks-- > 0 ? 0 : ct_fail(err, CTRUN_E_PEER_LOST, "a rank is lost");
}

RANKS_TEST_AROUND(a_close_that_hears_of_the_loss_ends, RANKS, begin, end)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group;
    struct ctrun_error err = {.text = ""};
    struct ctrun_work *work;
    void *memory;

    options.backend = "nccl";
    place.losses = (struct ct_loss_watch){.check = look_often, .sees_ranks = true};
    CHECK_OK(ct_group_open(&group, &place, &options, &err));
    CHECK_OK(ctrun_group_alloc(group, BYTES, &memory, &err));
    CHECK_OK(ctrun_all_reduce(group, memory, memory, COUNT, CTRUN_F32, CTRUN_SUM,
                              IN_BACKGROUND(&work), &err));
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    looks = 1; /* once for its calls, and once more when it frees the memory */
    ctrun_group_close(group);
    CHECK(looks < 0 &&
          (!fake_counts() || (fake_nccl.revokes == 1 && fake_nccl.aborts == 1)));
    CHECK(fake_nccl.blocks == 0 && fake_nccl.registered == 0);
    free(work); /* nobody waits for it */
    return 0;
}

/* ---- Kernels of the caller ----------------------------------------------------------------- */

/* A kernel that uses memory of the group as late as possible: when the host waits for the device, or has the new
 * group, which ends the communicator that the memory is registered with. */
static struct {
    void *memory;
    int waits; /* of the host, before */
    _Atomic bool has_new, has_run, is_there;
} late;

static void use_late(void *context)
{
    while (fake_nccl.device_waits == late.waits && !late.has_new)
        sched_yield();
    late.is_there = fake_device(late.memory) != NULL;
    late.has_run = true;
}

static int frees_early(int rank, void *context)
{
    struct ctrun_group *next;
    struct job *job;
    struct ctrun_error err = {.text = ""};

    job = open_job(rank, true);
    CHECK_OK(ctrun_group_alloc(job->group, BYTES, &late.memory, &err));
    tell_there(job);
    if (rank == LOST)
        await_death(job);
    ranks_await(TOLD, 1);
    ct_group_end(job->group, CTRUN_E_PEER_LOST, "rank 1 is lost");
    late.waits = fake_nccl.device_waits;
    fake_launch(job->stream, use_late, NULL);
    CHECK_OK(ctrun_group_free(job->group, late.memory, &err));
    job->place.ranks = left;
    job->place.rank_count = RANKS - 1;
    job->place.epoch = job->place.losses.losses = 1;
    CHECK_OK(ct_group_shrink(&next, &job->place, job->group, NULL, &err));
    late.has_new = true;
    finish(job);
    CHECK(late.has_run && late.is_there);
    ctrun_ddp_destroy(job->ddp);
    job->ddp = NULL;
    ctrun_group_close(job->group);
    job->group = next;
    close_job(job);
    return 0;
}

TEST_AROUND(memory_is_freed_behind_the_kernels_of_the_caller, begin, end)
{
    int statuses[RANKS];

    lose_one(frees_early, NULL, statuses);
    assert_int_equal(statuses[0], 0);
    assert_int_equal(statuses[2], 0);
}

/* ---- Faults at each call ----------------------------------------------------------------- */

/* The n-th call of rank 0 fails, counted from before the death. Returns 2 if there were fewer
 * calls. */
static int falters(int rank, void *context)
{
    const int *n = context;
    struct job *job = open_job(rank, true);
    struct ctrun_error err = {.text = ""};
    int calls, rc;

    if (rank == 0)
        (void)fake_fail_at(*n);
    rc = train(job, 0, true, &err);
    tell_there(job);
    CHECK(rc < 0 && err.code == rc && err.text[0]);
    if ((rc = shrink(job, &err)) == 0)
        rc = train(job, 0, false, &err);
    calls = fake_fail_at(0);
    CHECK(rc == 0 || (rc < 0 && err.code == rc && err.text[0]));
    if (rank == 0 && rc < 0)
        shared->losses = 2; /* this rank ends, which the other one sees here */
    close_job(job);
    return rank == 0 && calls < *n ? 2 : 0;
}

TEST_AROUND(a_fault_at_any_call_is_an_error_and_leaves_nothing, begin, end)
{
    const char *every = getenv("CTRUN_TEST_EVERY_FAULT");
    int statuses[RANKS];
    int n = 1;

    if (!every)
        print_message("every 13th call only; CTRUN_TEST_EVERY_FAULT=1: each\n");
    do {
        lose_one(falters, &n, statuses);
        if (statuses[2] != 0 || (statuses[0] != 0 && statuses[0] != 2 << 8))
            fail_msg("fault %d: %x %x", n, (unsigned)statuses[0],
                     (unsigned)statuses[2]);
        n += every ? 1 : 13; /* each try needs three processes */
    } while (statuses[0] == 0);
    assert_in_range(n, 60, 1000);
}

/* Rank `*odd` opens the group with another back end than all others. */
static int has_another_back_end(int rank, void *odd)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *group;
    struct ctrun_error err = {.text = ""};

    for (int is_nccl = 0; is_nccl < 2; is_nccl++) {
        options.backend = (rank == *(int *)odd) == is_nccl ? "nccl" : "host";
        CHECK(ct_group_open(&group, &place, &options, &err) == CTRUN_E_MISMATCH);
        CHECK(!group);
        CHECK(strstr(err.text, "has the back end"));
        CHECK(*(int *)odd == 0 || strstr(err.text, "rank 1 has the back end"));
    }
    return 0;
}

TEST_AROUND(another_back_end_is_a_mismatch_on_all_ranks, begin, end)
{
    for (int odd = 0; odd < 2; odd++)
        assert_int_equal(ranks_run(RANKS, has_another_back_end, &odd), 0);
}
