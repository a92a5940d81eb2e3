/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives from one buffer into another, collectives with parts of any length, and messages in
 * the background, in groups of 1 to 5 processes, over each kind of wire. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/comm/group_private.h"
#include "worker_sdk/comm/host/host_tcp_private.h"

enum {
    MOST = 70001 /* elements: several chunks, the last one not full */
};

static void fill(float *data, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++)
        data[i] = worlds_rough_value(rank, i);
}

/* The result of every reduction: the sum in rank order. */
static void check_sums(const float *data, int size, size_t first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        volatile float want = worlds_rough_value(0, first + i); /* rounded each time */
        for (int r = 1; r < size; r++)
            want = want + worlds_rough_value(r, first + i);
        CHECK(data[i] == want);
    }
}

WORLDS_TEST(every_reduction_is_made_in_rank_order, 5)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    float *in = calloc((size_t)size * MOST, sizeof *in);
    float *out = calloc((size_t)size * MOST, sizeof *out);
    struct ctrun_error err;

    for (size_t n = 5; n <= MOST; n = n == 5 ? 1000 : n == 1000 ? MOST : MOST + 1) {
        int root = (int)(n % (size_t)size);
        size_t all = n * (size_t)size;
        fill(in, rank, all);
        CHECK_OK(ctrun_all_reduce(group, in, out, n, CTRUN_F32, CTRUN_SUM, NULL, &err));
        check_sums(out, size, 0, n);
        out[0] = -7;
        CHECK_OK(ctrun_reduce(group, in, rank == root ? out : NULL, n, CTRUN_F32,
                              CTRUN_SUM, root, NULL, &err));
        CHECK(rank == root || out[0] == -7);
        if (rank == root)
            check_sums(out, size, 0, n);
        CHECK_OK(
            ctrun_reduce_scatter(group, in, out, n, CTRUN_F32, CTRUN_SUM, NULL, &err));
        check_sums(out, size, n * (size_t)rank, n);
        for (size_t i = 0; i < all; i++)
            CHECK(in[i] == worlds_rough_value(rank, i)); /* the input is not changed */
        CHECK_OK(ctrun_reduce(group, in, in, n, CTRUN_F32, CTRUN_SUM, root, NULL,
                              &err)); /* in place */
        if (rank == root)
            check_sums(in, size, 0, n);
        fill(in, rank, all);
        CHECK_OK(ctrun_reduce_scatter(group, in, in + n * (size_t)rank, n, CTRUN_F32,
                                      CTRUN_SUM, NULL, &err));
        check_sums(in + n * (size_t)rank, size, n * (size_t)rank, n);
    }
    free(in);
    free(out);
}

WORLDS_TEST(a_broadcast_may_be_read_elsewhere, 4)
{
    int rank = ctrun_group_rank(group);
    int root = ctrun_group_size(group) - 1;
    float *in = calloc(MOST, sizeof *in);
    struct ctrun_error err;
    void *shared;

    CHECK_OK(ctrun_group_alloc(group, MOST * sizeof *in, &shared, &err));
    for (size_t n = 9; n <= MOST; n = n == 9 ? MOST : MOST + 1) {
        float *out = shared;
        fill(in, rank, n);
        memset(out, 0xff, n * sizeof *out);
        CHECK_OK(ctrun_broadcast(group, rank == root ? in : NULL, out, n, CTRUN_F32,
                                 root, NULL, &err));
        for (size_t i = 0; i < n; i++)
            CHECK(out[i] == worlds_rough_value(root, i));
        CHECK_OK(ctrun_all_reduce(group, in, out, n, CTRUN_F32, CTRUN_SUM, NULL, &err));
        check_sums(out, ctrun_group_size(group), 0, n);
    }
    free(in);
}

/* Signed bytes differ from unsigned ones, and operations differ from each other. */
WORLDS_TEST(signed_bytes_have_a_sign, 2)
{
    int rank = ctrun_group_rank(group);
    static const int8_t wants[] = {-3, -2, 1, -6}; /* of MIN, MAX, then SUM, PROD */
    int8_t in = (int8_t)(rank == 0 ? -3 : -2);
    struct ctrun_error err;
    int8_t out;

    CHECK_OK(ctrun_all_reduce(group, &in, &out, 1, CTRUN_I8, CTRUN_MIN, NULL, &err));
    CHECK(out == wants[0]);
    CHECK_OK(ctrun_all_reduce(group, &in, &out, 1, CTRUN_I8, CTRUN_MAX, NULL, &err));
    CHECK(out == (ctrun_group_size(group) == 1 ? wants[0] : wants[1]));
    CHECK(ctrun_all_reduce(group, &in, &out, 1, CTRUN_I8, CTRUN_AVG, NULL, &err) ==
          CTRUN_E_UNSUPPORTED);
}

/* ---- Parts ------------------------------------------------------------------------------ */

/* The element that `from` sends to `to` at place i. */
static int32_t part_value(int from, int to, size_t i)
{
    return (int32_t)(i * 101 + (size_t)from * 7 + (size_t)to);
}

static void fill_parts(int32_t *in, int rank, int size, size_t n)
{
    for (int to = 0; to < size; to++)
        for (size_t i = 0; i < n; i++)
            in[(size_t)to * n + i] = part_value(rank, to, i);
}

static void check_part(const int32_t *part, int from, int to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        CHECK(part[i] == part_value(from, to, i));
}

WORLDS_TEST(equal_parts_go_where_they_belong, 5)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    int32_t *in = calloc((size_t)size * MOST, sizeof *in);
    int32_t *out = calloc((size_t)size * MOST, sizeof *out);
    struct ctrun_work *work;
    struct ctrun_error err;

    for (size_t n = 0; n <= MOST; n = n == 0 ? 3 : n == 3 ? MOST : MOST + 1) {
        int root = (int)(n % (size_t)size);
        size_t bytes = (size_t)size * MOST * sizeof *out;
        fill_parts(in, rank, size, n);
        memset(out, 0xff, bytes);
        CHECK_OK(ctrun_all_to_all(group, in, out, n, CTRUN_I32, NULL, &err));
        for (int r = 0; r < size; r++)
            check_part(out + (size_t)r * n, r, rank, n);
        memset(out, 0xff, bytes);
        CHECK_OK(ctrun_scatter(group, rank == root ? in : NULL, out, n, CTRUN_I32, root,
                               IN_BACKGROUND(&work), &err));
        CHECK_OK(ctrun_work_wait(work, &err));
        check_part(out, root, rank, n);
        memset(out, 0xff, bytes);
        CHECK_OK(ctrun_gather(group, in + (size_t)rank * n, rank == root ? out : NULL,
                              n, CTRUN_I32, root, NULL, &err));
        for (int r = 0; rank == root && r < size; r++)
            check_part(out + (size_t)r * n, r, r, n);
    }
    free(in);
    free(out);
}

/* A different number of elements for each pair, sometimes none, with gaps in front. */
static size_t part_count(int from, int to)
{
    return (size_t)((from * 3 + to * 5) % 4) * 9001;
}

WORLDS_TEST(unequal_parts_go_where_they_belong, 5)
{
    int rank = ctrun_group_rank(group);
    struct ctrun_parts in_parts = CTRUN_PARTS_INIT, out_parts = CTRUN_PARTS_INIT;
    int size = ctrun_group_size(group);
    size_t in_counts[8], out_counts[8], starts[8];
    int32_t *in = calloc((size_t)size * 30000, sizeof *in);
    int32_t *out = calloc((size_t)size * 30000, sizeof *out);
    struct ctrun_error err;
    int32_t *at = in;

    for (int r = 0; r < size; r++) {
        in_counts[r] = part_count(rank, r);
        out_counts[r] = part_count(r, rank);
        starts[r] = (size_t)r * 30000 + 7;
        for (size_t i = 0; i < in_counts[r]; i++)
            *at++ = part_value(rank, r, i);
    }
    in_parts.counts = in_counts;
    out_parts.counts = out_counts;
    out_parts.starts = starts;
    CHECK_OK(ctrun_all_to_all_v(group, in, &in_parts, out, &out_parts, CTRUN_I32, NULL,
                                &err));
    for (int r = 0; r < size; r++)
        check_part(out + starts[r], r, rank, out_counts[r]);
    for (int r = 0; r < size; r++)
        out_counts[r] = part_count(r, r);
    for (size_t i = 0; i < out_counts[rank]; i++)
        in[i] = part_value(rank, 0, i);
    CHECK_OK(ctrun_all_gather_v(group, in, out, &out_parts, CTRUN_I32, NULL, &err));
    for (int r = 0; r < size; r++)
        check_part(out + starts[r], r, 0, out_counts[r]);
    out_parts.counts = NULL;
    CHECK(ctrun_all_gather_v(group, in, out, &out_parts, CTRUN_I32, NULL, &err) ==
          -EINVAL);
    free(in);
    free(out);
}

/* Member 2 expects a different count from member 0; members 0 and 1 agree. */
static void one_differs(struct ctrun_group *group, void *context)
{
    struct ctrun_parts parts = CTRUN_PARTS_INIT;
    size_t counts[3] = {5, 6, 7};
    struct ctrun_work *work = NULL;
    struct ctrun_error err = {.text = ""};
    int32_t in[8] = {0}, out[20];

    parts.counts = counts;
    counts[0] += ctrun_group_rank(group) == 2;
    if (*(const bool *)context)
        CHECK_OK(ctrun_all_gather_v(group, in, out, &parts, CTRUN_I32,
                                    IN_BACKGROUND(&work), &err));
    CHECK((work ? ctrun_work_wait(work, &err)
                : ctrun_all_gather_v(group, in, out, &parts, CTRUN_I32, NULL, &err)) ==
          CTRUN_E_MISMATCH);
    CHECK(strstr(err.text, "rank 2 calls all_gather_v of i32"));
    CHECK(strstr(err.text, " with other counts: "));
}

TEST(different_counts_are_told_on_all_ranks)
{
    for (int in_background = 0; in_background < 2; in_background++) {
        bool is_work = in_background;

        worlds_run_with(3, one_differs, &is_work);
    }
}

/* ---- Messages --------------------------------------------------------------------------- */

/* Each rank starts to receive from every other, and then sends. */
WORLDS_TEST(messages_in_the_background_go_on_at_the_same_time, 5)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    int32_t *in = calloc((size_t)size * MOST, sizeof *in);
    int32_t *out = calloc((size_t)size * MOST, sizeof *out);
    struct ctrun_work *works[16];
    struct ctrun_error err;
    int count = 0;

    fill_parts(in, rank, size, MOST);
    for (int r = 0; r < size; r++)
        if (r != rank)
            CHECK_OK(ctrun_recv(group, out + (size_t)r * MOST, MOST, CTRUN_I32, r,
                                IN_BACKGROUND(&works[count++]), &err));
    for (int r = 0; r < size - 1; r++) {
        int to = r < rank ? r : r + 1;
        if (r == size - 2) /* the last one blocks */
            CHECK_OK(ctrun_send(group, in + (size_t)to * MOST, MOST, CTRUN_I32, to,
                                NULL, &err));
        else
            CHECK_OK(ctrun_send(group, in + (size_t)to * MOST, MOST, CTRUN_I32, to,
                                IN_BACKGROUND(&works[count++]), &err));
    }
    while (count)
        CHECK_OK(ctrun_work_wait_for(works[--count], 20000, &err));
    for (int r = 0; r < size; r++)
        if (r != rank)
            check_part(out + (size_t)r * MOST, r, rank, MOST);
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    free(in);
    free(out);
}

/* Two messages to each rank, the second a short one, in the worst order for a queue. */
WORLDS_TEST(a_batch_moves_at_once, 5)
{
    int rank = ctrun_group_rank(group);
    int size = ctrun_group_size(group);
    int32_t *in = calloc((size_t)size * MOST, sizeof *in);
    int32_t *out = calloc((size_t)size * MOST, sizeof *out);
    int32_t mine = rank, theirs[8];
    struct ctrun_error err;

    fill_parts(in, rank, size, MOST);
    CHECK_OK(ctrun_batch_begin(group, &err));
    for (int r = size - 1; r >= 0; r--) {
        if (r == rank)
            continue;
        CHECK_OK(
            ctrun_recv(group, out + (size_t)r * MOST, MOST, CTRUN_I32, r, NULL, &err));
        CHECK_OK(ctrun_recv(group, &theirs[r], 1, CTRUN_I32, r, NULL, &err));
    }
    for (int r = 0; r < size; r++) {
        if (r == rank)
            continue;
        CHECK_OK(
            ctrun_send(group, in + (size_t)r * MOST, MOST, CTRUN_I32, r, NULL, &err));
        CHECK_OK(ctrun_send(group, &mine, 1, CTRUN_I32, r, NULL, &err));
    }
    CHECK_OK(ctrun_batch_end(group, NULL, &err));
    for (int r = 0; r < size; r++) {
        if (r == rank)
            continue;
        check_part(out + (size_t)r * MOST, r, rank, MOST);
        CHECK(theirs[r] == r);
    }
    CHECK_OK(ctrun_barrier(group, NULL, &err));
    free(in);
    free(out);
}

TEST(a_batch_is_of_messages_only)
{
    struct ct_group_place place;
    struct ctrun_group *group;
    struct ctrun_error err;
    float x = 1;

    ranks_new_store(1);
    place = ranks_place(0, NULL);
    assert_int_equal(ct_group_open(&group, &place, NULL, &err), 0);
    assert_int_equal(ctrun_batch_end(group, NULL, &err), CTRUN_E_USAGE);
    assert_int_equal(ctrun_batch_begin(group, &err), 0);
    assert_int_equal(ctrun_batch_begin(group, &err), CTRUN_E_USAGE);
    assert_int_equal(ctrun_barrier(group, NULL, &err), CTRUN_E_USAGE);
    assert_int_equal(ctrun_send(group, &x, 1, CTRUN_F32, 0, NULL, &err), -EINVAL);
    assert_int_equal(ctrun_batch_end(group, NULL, &err), 0);
    assert_int_equal(ctrun_barrier(group, NULL, &err), 0);
    ctrun_group_close(group);
}

TEST(a_call_that_fails_at_once_leaves_no_work)
{
    const struct ctrun_parts none = CTRUN_PARTS_INIT;
    struct ct_group_place place;
    struct ctrun_group *group;
    struct ctrun_error err;
    float x = 1;
    char any;

    ranks_new_store(1);
    place = ranks_place(0, NULL);
    assert_int_equal(ct_group_open(&group, &place, NULL, &err), 0);
    for (int call = 0; call < 4; call++) {
        struct ctrun_work *work = (void *)&any;
        const struct ctrun_call_options *options = IN_BACKGROUND(&work);
        int rc = 0;

        switch (call) {
        case 0:
            rc = ctrun_all_to_all(group, &x, &x, 1, CTRUN_F32, options, &err);
            break;
        case 1:
            rc = ctrun_all_gather_v(group, &x, &x, &none, CTRUN_F32, options, &err);
            break;
        case 2:
            rc = ctrun_all_to_all_v(group, &x, NULL, &x, &none, CTRUN_F32, options,
                                    &err);
            break;
        case 3: rc = ctrun_batch_end(group, options, &err); break;
        }
        assert_true(rc < 0);
        assert_null(work);
    }
    ctrun_group_close(group);
}

WORLD_TEST(a_message_of_another_type_is_a_mismatch, 2)
{
    int rank = ctrun_group_rank(group);
    struct ctrun_error err = {.text = ""};
    int32_t data[4] = {0};
    int rc;

    rc = rank ? ctrun_recv(group, data, 4, CTRUN_I32, 0, NULL, &err)
              : ctrun_send(group, data, 4, CTRUN_F32, 1, NULL, &err);
    CHECK(rank == 0 || rc == CTRUN_E_MISMATCH);
    CHECK(rank == 0 || strcmp(err.text, "rank 1 calls recv of 4 i32 from rank 0, "
                                        "rank 0 calls send of 4 f32 to rank 1") == 0);
}

/* ---- Waiting ---------------------------------------------------------------------------- */

/* Rank 1 calls after rank 0 has given up once. */
WORLD_TEST(who_gives_up_may_wait_again, 2)
{
    int rank = ctrun_group_rank(group);
    struct ctrun_work *work;
    struct ctrun_error err;
    float x = (float)rank;

    if (rank == 1)
        ranks_await(0, 1);
    CHECK_OK(ctrun_all_reduce(group, &x, &x, 1, CTRUN_F32, CTRUN_SUM,
                              IN_BACKGROUND(&work), &err));
    if (rank == 0) {
        CHECK(ctrun_work_test(work, &err) == 0);
        CHECK(ctrun_work_wait_for(work, 5, &err) == CTRUN_E_TIMEOUT);
        ranks_signal(0);
    }
    CHECK_OK(ctrun_work_wait_for(work, 20000, &err));
    CHECK(x == 1);
}

/* Rank 1 never calls; the group's own timeout would be half a minute. */
WORLD_TEST(a_call_may_have_a_deadline_of_its_own, 2)
{
    int rank = ctrun_group_rank(group);
    struct ctrun_call_options soon = CTRUN_CALL_OPTIONS_INIT;
    struct ctrun_error err = {.text = ""};
    float x[2] = {0};

    soon.timeout_ms = 30;
    if (rank == 1) {
        ranks_await(0, 1);
    } else {
        CHECK(ctrun_all_to_all(group, x, x + 1, 0, CTRUN_F32, &soon, &err) ==
              CTRUN_E_TIMEOUT);
        CHECK(strstr(err.text, "all_to_all") && strstr(err.text, "rank 1"));
        ranks_signal(0);
    }
}

/* Bytes that this process sends before it dies; 0: it does not die. */
static size_t dies_after;
static size_t put_bytes; /* in shared memory, so far */

static void die_if_sent(size_t bytes)
{
    if (dies_after && bytes > dies_after)
        _exit(0);
}

size_t __real_ct_ring_put(struct ct_segment *segment, int member, const void *data,
                          size_t bytes);
size_t __wrap_ct_ring_put(struct ct_segment *segment, int member, const void *data,
                          size_t bytes);
size_t __wrap_ct_ring_put(struct ct_segment *segment, int member, const void *data,
                          size_t bytes)
{
    const size_t put = __real_ct_ring_put(segment, member, data, bytes);

    put_bytes += put;
    die_if_sent(put_bytes);
    return put;
}

enum ct_moved __real_ct_host_tcp_push(int fd, const void *data, size_t end,
                                      size_t *done);
enum ct_moved __wrap_ct_host_tcp_push(int fd, const void *data, size_t end,
                                      size_t *done);
enum ct_moved __wrap_ct_host_tcp_push(int fd, const void *data, size_t end,
                                      size_t *done)
{
    const enum ct_moved moved = __real_ct_host_tcp_push(fd, data, end, done);

    die_if_sent(*done);
    return moved;
}

/* Rank 1 sends a part of its data and dies. The part is more than the buffers of a connection hold,
 * so rank 0 is in its call then. */
WORLD_TEST(a_rank_that_dies_among_messages_is_named, 2)
{
    int rank = ctrun_group_rank(group);
    char *in = calloc(2, 64 << 20);
    char *out = calloc(2, 64 << 20);
    struct ctrun_error err = {.text = ""};
    int rc;

    dies_after = rank == 1 ? 16 << 20 : 0;
    rc = ctrun_all_to_all(group, in, out, 64 << 20, CTRUN_U8, NULL, &err);
    CHECK(rank == 0);
    CHECK(rc == CTRUN_E_PEER_LOST && strstr(err.text, "rank 1"));
    free(in);
    free(out);
}

/* ---- Splitting -------------------------------------------------------------------------- */

/* Splits into even and odd, then the even ranks once more; the last rank is in no part. */
static int split(int rank, void *context)
{
    const struct world *world = context;
    struct ct_group_place place = ranks_place(rank, worlds_host_of(world->wire, rank));
    struct ctrun_group *all = worlds_open(rank, world);
    int color = rank == world->size - 1 ? CTRUN_SPLIT_NONE : rank % 2;
    struct ctrun_group *part, *again;
    struct ctrun_error err;
    int sum = rank;

    CHECK(ct_group_split(&part, &place, all, -2, NULL, &err) == -EINVAL && !part);
    CHECK_OK(ct_group_split(&part, &place, all, color, NULL, &err));
    ctrun_group_close(all); /* the parts stay usable */
    if (color < 0)
        return part ? 1 : 0;
    CHECK(ctrun_group_rank(part) == rank / 2);
    CHECK_OK(ctrun_all_reduce(part, &sum, &sum, 1, CTRUN_I32, CTRUN_SUM, NULL, &err));
    CHECK(sum == (color ? 1 + 3 : 0 + 2 + 4));
    CHECK_OK(ct_group_split(&again, &place, part, ctrun_group_rank(part), NULL, &err));
    CHECK(ctrun_group_size(again) == 1);
    ctrun_group_close(again);
    ctrun_group_close(part);
    return 0;
}

/* Over TCP, with a deadline of its own, as the parent. */
WORLD_TEST(a_part_has_the_options_of_its_parent, 2)
{
    const int rank = ctrun_group_rank(group);
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *parent, *part;
    struct ctrun_error err;

    (void)context;
    options.shm = 0;
    options.timeout_ms = 54321;
    CHECK_OK(ct_group_open(&parent, &place, &options, &err));
    CHECK_OK(ct_group_split(&part, &place, parent, 0, NULL, &err));
    CHECK(!part->backend->is_inline(part->self));
    CHECK(part->timeout_ms == 54321);
    ctrun_group_close(part);
    options.shm = 1;
    options.timeout_ms = 0; /* the default */
    CHECK_OK(ct_group_split(&part, &place, parent, 0, &options, &err));
    CHECK(part->backend->is_inline(part->self));
    CHECK(part->timeout_ms == 600000);
    ctrun_group_close(part);
    ctrun_group_close(parent);
}

/* Ranks 0 and 1 have no descriptors for their part; rank 2 has a part of its own, and learns it from parent. */
WORLD_TEST(a_split_that_fails_after_the_meeting_ends_the_parent, 3)
{
    const int rank = ctrun_group_rank(group);
    struct ct_group_place place = ranks_place(rank, NULL);
    struct rlimit limit, none;
    struct ctrun_group *part;
    struct ctrun_error err;
    const int next = dup(STDERR_FILENO); /* the lowest one that is free */
    int rc;

    (void)context;
    close(next);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    none = limit;
    none.rlim_cur = (rlim_t)next;
    if (rank < 2)
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    rc = ct_group_split(&part, &place, group, rank / 2, NULL, &err);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(rc == (rank < 2 ? -EMFILE : 0) && !part == (rank < 2));
    CHECK(ctrun_barrier(group, NULL, &err) < 0 && strstr(err.text, "open group: "));
    if (rank < 2)
        CHECK(ct_group_split(&part, &place, group, 0, NULL, &err) < 0);
    ctrun_group_close(part);
}

TEST(a_group_splits_by_color)
{
    for (int wire = 0; wire < WIRES; wire++) {
        struct world world = {6, (enum wire)wire};
        assert_int_equal(ranks_run(6, split, &world), 0);
    }
}
