/* SPDX-License-Identifier: Apache-2.0 */
/* What all nodes report of a stuck world, in one line, and what follows from it. */
#include "rendezvous/report/hang_views.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

#define NETWORK                                                                        \
    "no rank is behind: look at the network between the nodes; the stacks show "       \
    "whether all are in the same call"

/* A node of a world of that size, without ranks that had ended. */
static void add(struct hang_views *views, const struct ct_hang_view *view,
                uint32_t world_size)
{
    static struct ct_stopped stopped;

    stopped = (struct ct_stopped){.hang = *view};
    hang_views_add(views, &stopped, world_size);
}

/* One whose `count` ranks, from `rank` on, had ended with 0. */
static void add_ended(struct hang_views *views, int rank, uint8_t count,
                      uint32_t world_size)
{
    static struct ct_stopped stopped;

    stopped = (struct ct_stopped){.failure_count = count};
    for (int i = 0; i < count; i++)
        stopped.failures[i] = (struct ct_failure){.cause = CT_CAUSE_EARLY,
                                                  .rank = rank + i};
    hang_views_add(views, &stopped, world_size);
}

/* A node with one rank that waits, at that step. */
static void add_waiting(struct hang_views *views, int rank, int64_t step,
                        uint32_t world_size)
{
    struct ct_hang_view view = {
        .ranks = 1, .waiting = 1, .lowest = step, .furthest = step};

    snprintf(view.waiting_ranks, sizeof view.waiting_ranks, "%d", rank);
    add(views, &view, world_size);
}

static const char *find(const struct ct_failure *failure, enum ct_fact_key key)
{
    const char *text = ct_facts_find(&failure->facts, key);

    return text ? text : "none";
}

TEST(ranks_of_all_nodes_are_added_up)
{
    static struct ct_failure failure = {.cause = CT_CAUSE_HANG};
    struct hang_views views = {0};

    assert_true(ct_facts_add(&failure.facts, CT_FACT_DO, "look at that stack"));
    add(&views,
        &(struct ct_hang_view){.ranks = 4,
                               .waiting = 3,
                               .lowest = 41,
                               .furthest = 42,
                               .waiting_ranks = "0-1, 3"},
        12);
    hang_views_add_facts(&views, &failure);
    /* Its node's report says it all. */
    assert_int_equal(failure.facts.count, 1);
    add(&views, &(struct ct_hang_view){0}, 12); /* it has not looked */
    hang_views_add_facts(&views, &failure);
    assert_int_equal(failure.facts.count, 1);
    add(&views, &(struct ct_hang_view){.ranks = 4, .lowest = 7, .furthest = 7}, 12);
    add(&views,
        &(struct ct_hang_view){.ranks = 4,
                               .waiting = 4,
                               .lowest = 42,
                               .furthest = 43,
                               .waiting_ranks = "8-11"},
        12);
    hang_views_add_facts(&views, &failure);
    assert_int_equal(failure.facts.count, 2);
    assert_string_equal(find(&failure, CT_FACT_WORLD),
                        "of 12 ranks on 3 nodes 7 wait in a collective (0-1, 3, 8-11); "
                        "last steps 7 to 43");
    assert_string_equal(find(&failure, CT_FACT_DO), "look at that stack");
}

TEST(a_rank_that_had_ended_with_zero_on_another_node_is_waited_for)
{
    static struct ct_failure failure;
    struct hang_views views = {0};

    failure = (struct ct_failure){.cause = CT_CAUSE_HANG};
    add_waiting(&views, 0, -1, 3);
    add_ended(&views, 1, 1, 3);
    hang_views_add_facts(&views, &failure); /* rank 2 is not known */
    assert_string_equal(find(&failure, CT_FACT_WORLD),
                        "of 2 ranks seen on 2 nodes 1 waits in a collective (0), 1 had "
                        "ended with 0 (1)");
    assert_string_equal(find(&failure, CT_FACT_LIKELY), "none");
    failure = (struct ct_failure){.cause = CT_CAUSE_HANG};
    add_waiting(&views, 2, -1, 3);
    hang_views_add_facts(&views, &failure);
    assert_string_equal(find(&failure, CT_FACT_WORLD),
                        "of 3 ranks on 3 nodes 2 wait in a collective (0, 2), 1 had "
                        "ended with 0 (1)");
    assert_string_equal(find(&failure, CT_FACT_LIKELY),
                        "the ranks that wait, wait for rank 1, which had ended with 0");
    assert_string_equal(find(&failure, CT_FACT_DO),
                        "look at why rank 1 ended before the others");
    assert_string_equal(find(&failure, CT_FACT_SO), "none");
}

TEST(ranks_of_the_only_node_that_had_ended_are_waited_for)
{
    static struct ct_failure failure = {.cause = CT_CAUSE_HANG};
    static struct ct_stopped stopped = {
        .hang = {.ranks = 1, .waiting = 1, .waiting_ranks = "0"},
        .failure_count = 2,
        .failures = {{.cause = CT_CAUSE_EARLY, .rank = 1},
                     {.cause = CT_CAUSE_EARLY, .rank = 2}}};
    struct hang_views views = {0};

    hang_views_add(&views, &stopped, 3);
    hang_views_add_facts(&views, &failure);
    assert_string_equal(find(&failure, CT_FACT_WORLD), "none");
    assert_string_equal(
        find(&failure, CT_FACT_LIKELY),
        "the ranks that wait, wait for ranks 1, 2, which had ended with 0");
}

TEST(where_all_ranks_wait_in_the_same_step_the_network_is_named)
{
    static struct ct_failure failure;
    struct hang_views views = {0};

    add_waiting(&views, 0, 7, 2);
    failure = (struct ct_failure){.cause = CT_CAUSE_HANG};
    hang_views_add_facts(&views, &failure); /* rank 1 is not known */
    assert_string_equal(find(&failure, CT_FACT_SO),
                        "it is not known for which rank it waits");
    assert_non_null(strstr(find(&failure, CT_FACT_DO), "if this pause is normal"));
    add_waiting(&views, 1, 7, 2);
    failure = (struct ct_failure){.cause = CT_CAUSE_HANG};
    hang_views_add_facts(&views, &failure);
    assert_string_equal(find(&failure, CT_FACT_DO), NETWORK);
    assert_string_equal(find(&failure, CT_FACT_SO), "none");
    views.lowest = 6; /* of rank 0 */
    failure = (struct ct_failure){.cause = CT_CAUSE_HANG};
    hang_views_add_facts(&views, &failure);
    assert_non_null(strstr(find(&failure, CT_FACT_DO), "if this pause is normal"));
}

TEST(where_all_ranks_of_one_node_wait_their_stacks_are_compared)
{
    static struct ct_failure failure = {.cause = CT_CAUSE_HANG};
    struct hang_views views = {0};

    add(&views,
        &(struct ct_hang_view){.ranks = 2, .waiting = 2, .waiting_ranks = "0-1"}, 2);
    hang_views_add_facts(&views, &failure);
    assert_string_equal(find(&failure, CT_FACT_DO),
                        "no rank is behind: compare the stacks of the ranks");
}

TEST(a_rank_that_has_timed_out_has_them_too)
{
    static struct ct_failure failure = {.cause = CT_CAUSE_EXIT, .code = 1};
    struct hang_views views = {0};

    assert_true(ct_facts_add(&failure.facts, CT_FACT_DO, "look for a rank"));
    add(&views, &(struct ct_hang_view){.ranks = 1, .lowest = -1, .furthest = -1}, 3);
    add(&views,
        &(struct ct_hang_view){.ranks = 2,
                               .waiting = 1,
                               .lowest = -1,
                               .furthest = -1,
                               .waiting_ranks = "3"},
        4);
    hang_views_add_facts(&views, &failure); /* another cause */
    assert_int_equal(failure.facts.count, 1);
    failure.error = CTRUN_E_PEER_LOST;
    hang_views_add_facts(&views, &failure);
    assert_string_equal(find(&failure, CT_FACT_WORLD),
                        "of 3 ranks seen on 2 nodes 1 waits in a collective (3)");
    assert_string_equal(find(&failure, CT_FACT_DO), "look for a rank");
}

TEST(where_all_have_waited_for_the_timeout_no_rank_is_said_to_be_behind)
{
    static struct ct_failure failure = {
        .cause = CT_CAUSE_EXIT, .code = 1, .error = CTRUN_E_PEER_LOST};
    struct hang_views views = {0};

    assert_true(ct_facts_add(&failure.facts, CT_FACT_DO, "look for a rank"));
    assert_true(ct_facts_add(&failure.facts, CT_FACT_LIKELY, "it waited"));
    for (int rank = 0; rank < 3; rank++)
        add_waiting(&views, rank, -1, 3);
    hang_views_add_facts(&views, &failure);
    assert_string_equal(find(&failure, CT_FACT_WORLD),
                        "of 3 ranks on 3 nodes 3 wait in a collective (0, 1, 2)");
    assert_string_equal(find(&failure, CT_FACT_DO), NETWORK);
    assert_string_equal(find(&failure, CT_FACT_LIKELY), "it waited");
}

TEST(ranks_without_room_are_counted)
{
    static struct ct_failure failure = {.cause = CT_CAUSE_HANG};
    struct hang_views views = {0};
    struct ct_hang_view view = {.ranks = 9, .waiting = 8};
    const char *text;

    for (int node = 0; node < 1000; node++) {
        snprintf(view.waiting_ranks, sizeof view.waiting_ranks, "%03d", node);
        add(&views, &view, 9000);
    }
    hang_views_add_facts(&views, &failure);
    text = ct_facts_find(&failure.facts, CT_FACT_WORLD);
    assert_non_null(text);
    assert_non_null(strstr(text, "of 9000 ranks on 1000 nodes 8000 wait in"));
    /* 51 times "000, " fits into 256 bytes */
    assert_non_null(strstr(text, ", 050 and 7592 more); last steps 0 to 0"));
}

TEST(a_fact_without_room_is_left_out)
{
    static struct ct_failure failure = {.cause = CT_CAUSE_HANG};
    struct hang_views views = {.world_size = 2, .nodes = 2, .seen = 2};

    while (ct_facts_add(&failure.facts, CT_FACT_AT, "thirty bytes or so of other text"))
        ;
    hang_views_add_facts(&views, &failure);
    assert_null(ct_facts_find(&failure.facts, CT_FACT_WORLD));
}
