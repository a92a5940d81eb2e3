/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of the ranks that are left, and the state that they exchange before they continue. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "tests/lib/worlds.h"
#include "worker_sdk/base/error.h"

enum {
    LEFT = 3, /* ranks that are left of four; rank 1 is lost */
    LOST = 1,
    GONE = 3, /* counter: rank 1 is about to end */
};

static const int left[LEFT] = {0, 2, 3};

static struct ct_group_place place_of(int rank, enum wire wire)
{
    struct ct_group_place place = ranks_place(rank, worlds_host_of(wire, rank));

    place.ranks = left;
    place.rank_count = LEFT;
    place.epoch = 1;
    return place;
}

/* Rank 1 ends without closing its groups; the others shrink the world and a group that was split
 * from it. */
static int goes_on(int rank, void *context)
{
    const struct world world = {4, *(enum wire *)context};
    struct ct_group_place place = ranks_place(rank, worlds_host_of(world.wire, rank));
    struct ctrun_group *old = worlds_open(rank, &world);
    struct ctrun_group *odd, *next, *half, *fresh;
    struct ctrun_error err = {.text = ""};
    int64_t sum = 1 << rank;

    CHECK_OK(ct_group_split(&odd, &place, old, rank % 2, NULL, &err));
    CHECK_OK(ctrun_barrier(old, NULL, &err));
    if (rank == LOST) {
        ranks_signal(GONE);
        _exit(0);
    }
    ranks_await(GONE, 1);
    place = place_of(rank, world.wire);
    CHECK_OK(ct_group_shrink(&next, &place, old, NULL, &err));
    CHECK(ctrun_group_size(next) == LEFT);
    CHECK(ctrun_group_rank(next) == (rank ? rank - 1 : 0));
    CHECK_OK(ctrun_all_reduce(next, &sum, &sum, 1, CTRUN_I64, CTRUN_SUM, NULL, &err));
    CHECK(sum == (1 | 4 | 8));
    CHECK_OK(ct_group_shrink(&half, &place, odd, NULL, &err));
    CHECK(ctrun_group_size(half) == (rank % 2 ? 1 : 2));
    CHECK_OK(ct_group_open(&fresh, &place, NULL, &err)); /* of those that are left */
    CHECK(ctrun_group_size(fresh) == LEFT);
    CHECK_OK(ctrun_barrier(fresh, NULL, &err));
    ctrun_group_close(fresh);
    ctrun_group_close(half);
    ctrun_group_close(next);
    ctrun_group_close(odd);
    ctrun_group_close(old);
    return 0;
}

TEST(who_is_left_meets_under_new_numbers)
{
    for (int wire = 0; wire < WIRES; wire++) {
        enum wire here = (enum wire)wire;

        assert_int_equal(ranks_run(4, goes_on, &here), 0);
    }
}

TEST(a_lost_rank_can_be_no_member)
{
    const int members[] = {0, LOST};
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ct_group_place place;
    struct ctrun_group *group;
    struct ctrun_error err;

    ranks_new_store(4);
    place = place_of(0, WIRE_SHM);
    options.ranks = members;
    options.rank_count = 2;
    assert_int_equal(ct_group_open(&group, &place, &options, &err), CTRUN_E_PEER_LOST);
    assert_string_equal(err.text, "open group: rank 1 is lost");
    assert_null(group);
}

static uint32_t losses_seen;

static int one_is_lost(void *context, uint32_t losses, bool leaves_node,
                       struct ctrun_error *err)
{
    return losses < losses_seen ? ct_fail(err, CTRUN_E_PEER_LOST, "rank 9 is lost") : 0;
}

/* No rank of this group died, but its ranks must call ctrun_group_shrink(), too. */
static int receives_loss_of_a_non_member(int rank, void *context)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ct_group_place place = ranks_place(rank, NULL);
    struct ctrun_group *before, *after;
    struct ctrun_error err = {.text = ""};

    options.shm = *(enum wire *)context != WIRE_TCP;
    place.local_count = 2; /* one node: the loss of a node would not matter */
    place.losses = (struct ct_loss_watch){.check = one_is_lost, .sees_ranks = true};
    CHECK_OK(ct_group_open(&before, &place, &options, &err));
    place.losses.losses = 1;
    CHECK_OK(ct_group_open(&after, &place, &options, &err));
    losses_seen = 1;
    if (rank == 0) {
        CHECK(ctrun_barrier(before, NULL, &err) == CTRUN_E_PEER_LOST);
        CHECK(strstr(err.text, "rank 9 is lost"));
    }
    CHECK_OK(ctrun_barrier(after, NULL, &err)); /* it was opened later */
    ctrun_group_close(before);
    ctrun_group_close(after);
    return 0;
}

TEST(the_loss_of_a_non_member_ends_the_groups_before_it)
{
    for (int wire = 0; wire < WIRE_MIXED; wire++) {
        enum wire here = (enum wire)wire;

        assert_int_equal(ranks_run(2, receives_loss_of_a_non_member, &here), 0);
    }
}

/* ---- Catching up ------------------------------------------------------------------------ */

static void give_ranks_their_state(struct ctrun_tensor *state, double *values,
                                   int64_t *count, int rank)
{
    values[0] = rank;
    values[1] = rank + 0.5;
    *count = 100 + rank;
    state[0] = (struct ctrun_tensor)CTRUN_TENSOR_INIT;
    state[0].name = "values";
    state[0].dtype = CTRUN_F64;
    state[0].dims = 1;
    state[0].sizes[0] = 2;
    state[0].data = values;
    state[1] = (struct ctrun_tensor)CTRUN_TENSOR_INIT;
    state[1].name = "count";
    state[1].dtype = CTRUN_I64;
    state[1].data = count;
}

/* Ranks 1 and 2 are one step ahead: rank 1, the lower one, sends its state. */
WORLD_TEST(who_is_behind_gets_the_state_of_who_is_ahead, 3)
{
    struct ctrun_tensor state[2];
    struct ctrun_error err = {.text = ""};
    const int rank = ctrun_group_rank(group);
    uint64_t steps = rank ? 8 : 7;
    double values[2];
    int64_t count;

    give_ranks_their_state(state, values, &count, rank);
    CHECK_OK(ctrun_group_catch_up(group, &steps, state, 2, &err));
    CHECK(steps == 8 && values[0] == 1 && values[1] == 1.5 && count == 101);
    values[0] = rank;
    CHECK_OK(ctrun_group_catch_up(group, &steps, state, 2, &err));
    CHECK(steps == 8 && values[0] == rank); /* equal steps: nothing is sent */
}

static void lists_differ(struct ctrun_group *group, void *context)
{
    struct ctrun_tensor state[2];
    struct ctrun_error err = {.text = ""};
    const int rank = ctrun_group_rank(group);
    uint64_t steps = (uint64_t)rank;
    double values[2];
    int64_t count;

    give_ranks_their_state(state, values, &count, rank);
    CHECK(ctrun_group_catch_up(group, &steps, state, rank ? 1 : 2, &err) ==
          CTRUN_E_MISMATCH);
    CHECK(strstr(err.text, "rank 0 gives 2 tensors, rank 1 1"));
}

/* The same number and sizes, in another order: rank 0 would take the one for the other. */
static void orders_differ(struct ctrun_group *group, void *context)
{
    struct ctrun_tensor state[2];
    struct ctrun_error err = {.text = ""};
    const int rank = ctrun_group_rank(group);
    uint64_t steps = (uint64_t)rank;
    double values[2] = {rank, rank};

    for (int i = 0; i < 2; i++) {
        state[i] = (struct ctrun_tensor)CTRUN_TENSOR_INIT;
        state[i].name = i == rank ? "weight" : "momentum";
        state[i].dtype = CTRUN_F64;
        state[i].data = &values[i];
    }
    CHECK(ctrun_group_catch_up(group, &steps, state, 2, &err) == CTRUN_E_MISMATCH);
    CHECK(strstr(err.text, "the tensors of rank 1 have other names"));
    CHECK(values[0] == rank && values[1] == rank);
}

TEST(different_states_are_told_on_all_ranks)
{
    worlds_run_with(2, lists_differ, NULL);
    worlds_run_with(2, orders_differ, NULL);
}

/* ---- Those who are new ------------------------------------------------------------------ */

/* Rank 1 leaves, the others shrink, and it joins them with a larger number of steps. */
static int comes_again(int rank, void *context)
{
    static const int all[] = {0, 1, 2}, others[] = {0, 2};
    const struct world world = {3, *(enum wire *)context};
    struct ct_group_place place = ranks_place(rank, worlds_host_of(world.wire, rank));
    struct ctrun_group *first = worlds_open(rank, &world);
    struct ctrun_group *second = worlds_open(rank, &world);
    struct ctrun_group *between = NULL, *other = NULL, *half = NULL, *again;
    struct ctrun_tensor state[2];
    struct ctrun_error err = {.text = ""};
    uint64_t steps = rank == LOST ? 90 : 7;
    double values[2];
    int64_t count;

    give_ranks_their_state(state, values, &count, rank);
    CHECK_OK(ctrun_barrier(first, NULL, &err));
    CHECK(ct_group_is_whole(first));
    place.ranks = others;
    place.rank_count = 2;
    place.epoch = 1;
    if (rank != LOST) {
        CHECK_OK(ct_group_shrink(&between, &place, first, NULL, &err));
        CHECK_OK(ct_group_shrink(&other, &place, second, NULL, &err));
    }
    place.ranks = all;
    place.rank_count = 3;
    place.epoch = 2;
    place.takes_all = true;
    if (rank != LOST)
        CHECK_OK(ct_group_shrink(&again, &place, between, NULL, &err));
    else
        CHECK_OK(ct_group_join(&again, &place, ct_group_root(first), NULL, &err));
    CHECK(ctrun_group_size(again) == 3 && ctrun_group_rank(again) == rank);
    place.takes_all = false;
    if (rank != LOST) { /* another group: only of the ranks that were left */
        CHECK_OK(ct_group_shrink(&half, &place, other, NULL, &err));
        CHECK(ctrun_group_size(half) == 2);
    }
    CHECK_OK(ctrun_group_catch_up(again, &steps, state, 2, &err));
    CHECK(steps == 7 && count == 100 && values[0] == 0); /* from rank 0, the lowest */
    CHECK_OK(ctrun_group_catch_up(again, &steps, state, 2, &err)); /* no rank is new */
    ctrun_group_close(half);
    ctrun_group_close(again);
    ctrun_group_close(other);
    ctrun_group_close(between);
    ctrun_group_close(second);
    ctrun_group_close(first);
    return 0;
}

/* A tensor of several pieces, and an empty one before the last. */
WORLD_TEST(a_large_state_arrives_in_pieces, 2)
{
    enum {
        LARGE = 3000001
    };
    static float large[LARGE];
    struct ctrun_tensor state[3] = {CTRUN_TENSOR_INIT, CTRUN_TENSOR_INIT,
                                    CTRUN_TENSOR_INIT};
    struct ctrun_error err = {.text = ""};
    const int rank = ctrun_group_rank(group);
    uint64_t steps = (uint64_t)rank;
    int32_t last = rank;

    for (int i = 0; rank == 1 && i < LARGE; i++)
        large[i] = (float)i;
    for (int i = 0; i < 3; i++) {
        state[i].name = "some";
        state[i].dtype = i == 2 ? CTRUN_I32 : CTRUN_F32;
        state[i].dims = i == 2 ? 0 : 1;
        state[i].sizes[0] = i == 0 ? LARGE : 0;
        state[i].data = i == 2 ? (void *)&last : large;
    }
    CHECK_OK(ctrun_group_catch_up(group, &steps, state, 3, &err));
    CHECK(steps == 1 && last == 1);
    for (int i = 0; i < LARGE; i++)
        CHECK(large[i] == (float)i);
}

TEST(a_new_rank_joins_and_gets_the_state)
{
    for (int wire = 0; wire < WIRES; wire++) {
        enum wire here = (enum wire)wire;

        assert_int_equal(ranks_run(3, comes_again, &here), 0);
    }
}

/* On rank 1 two pages of the tensor are the same memory: the second one overwrites the first. */
WORLD_TEST(a_state_that_does_not_arrive_as_it_was_is_told, 2)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct ctrun_tensor tensor = CTRUN_TENSOR_INIT;
    struct ctrun_error err = {.text = ""};
    const int rank = ctrun_group_rank(group);
    uint64_t steps = rank ? 1 : 2;
    const int fd = memfd_create("page", MFD_CLOEXEC);
    char *at = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                    -1, 0);

    CHECK(at != MAP_FAILED && ftruncate(fd, (off_t)page) == 0);
    for (size_t i = 0; rank && i < 2; i++)
        CHECK(mmap(at + i * page, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                   fd, 0) != MAP_FAILED);
    memset(at + page, 1, page);
    tensor.name = "values";
    tensor.dtype = CTRUN_U8;
    tensor.dims = 1;
    tensor.sizes[0] = (int64_t)(2 * page);
    tensor.data = at;
    CHECK(ctrun_group_catch_up(group, &steps, &tensor, 1, &err) == CTRUN_E_MISMATCH);
    CHECK(strstr(err.text, "rank 1 received differs from the state of rank 0"));
    munmap(at, 2 * page);
    close(fd);
}

/* Rank 0 is ahead, and dies while it sends its second tensor: the others have a part of its
 * state. */
static int giver_dies(int rank, void *context)
{
    static const int others[] = {1, 2};
    const struct world world = {3, *(enum wire *)context};
    struct ct_group_place place = ranks_place(rank, worlds_host_of(world.wire, rank));
    struct ctrun_group *first = worlds_open(rank, &world);
    struct ctrun_group *next;
    struct ctrun_tensor state[2];
    struct ctrun_error err = {.text = ""};
    uint64_t steps = rank ? 7 : 8;
    double values[2];
    int64_t count;

    give_ranks_their_state(state, values, &count, rank);
    (void)signal(SIGSEGV, SIG_DFL); /* cmocka's handler would run the next test */
    if (rank == 0)
        state[1].data = (void *)8; /* it dies when it reads this */
    CHECK(ctrun_group_catch_up(first, &steps, state, 2, &err) < 0);
    place.ranks = others;
    place.rank_count = 2;
    place.epoch = 1;
    CHECK_OK(ct_group_shrink(&next, &place, first, NULL, &err));
    CHECK(ctrun_group_catch_up(next, &steps, state, 2, &err) == CTRUN_E_CHANGED);
    CHECK(strstr(err.text, "no rank of this group has a whole state"));
    ctrun_group_close(next);
    ctrun_group_close(first);
    return 0;
}

TEST(who_got_a_state_in_part_is_not_taken_for_whole)
{
    for (int wire = 0; wire < WIRE_MIXED; wire++) {
        enum wire here = (enum wire)wire;
        struct ranks *ranks = ranks_start(3, giver_dies, &here);
        int statuses[3];

        (void)ranks_finish(ranks, statuses);
        assert_int_equal(statuses[1], 0);
        assert_int_equal(statuses[2], 0);
    }
}

TEST(a_state_that_is_none_is_refused)
{
    struct ctrun_group *group;
    struct ctrun_tensor tensors[2];
    struct ctrun_error err;
    uint64_t steps = 0;
    double values[2];
    int64_t count;

    ranks_new_store(1);
    group = ranks_open(0, NULL, NULL);
    for (int wrong = 0; wrong < 6; wrong++) {
        give_ranks_their_state(tensors, values, &count, 0);
        if (wrong == 0)
            tensors[1].name = NULL;
        else if (wrong == 1)
            tensors[1].dtype = (enum ctrun_dtype)99;
        else if (wrong == 2)
            tensors[0].dims = CTRUN_MAX_DIMS + 1;
        else if (wrong == 3)
            tensors[0].sizes[0] = INT64_MAX;
        else if (wrong == 4)
            tensors[0].data = NULL;
        else
            tensors[0].whole[0] = 4;
        assert_int_equal(ctrun_group_catch_up(group, &steps, tensors, 2, &err),
                         -EINVAL);
        assert_non_null(strstr(err.text, wrong < 2 ? "state[1]" : "state[0]"));
    }
    ctrun_group_close(group);
}
