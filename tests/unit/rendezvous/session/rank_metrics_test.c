/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/session/rank_metrics.h"
#include "rendezvous/session/session_limits.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

static struct ct_metrics message;

static void tell(int32_t rank, const char *name, double value)
{
    struct ct_metric_sent *told = &message.list[message.count++];

    told->rank = rank;
    (void)ct_copy(told->name, sizeof told->name, name);
    told->bits = ct_metric_to_bits(value);
}

static void begin(uint64_t generation)
{
    message.generation = generation;
    message.count = 0;
}

TEST(the_last_value_of_a_rank_s_own_names_stays)
{
    size_t all = 0;
    struct rank_metrics metrics = {.all = &all};

    begin(4);
    tell(9, "loss", 1);
    tell(8, "loss", 2);
    tell(9, "rate", 3);
    tell(7, "loss", 4);  /* of another node */
    tell(10, "loss", 5); /* of another node */
    tell(-1, "loss", 5);
    tell(9, "no name", 6);
    assert_int_equal(rank_metrics_on_metrics(&metrics, &message, 8, 2, false), 4);
    begin(4);
    tell(9, "loss", 7);
    assert_int_equal(rank_metrics_on_metrics(&metrics, &message, 8, 2, false), 0);
    assert_int_equal(metrics.rank_count, 2);
    assert_int_equal(metrics.ranks[0].rank, 8);
    assert_int_equal(metrics.ranks[1].count, 2);
    assert_true(metrics.ranks[1].list[0].value == 7);
    assert_int_equal(all, 3);
    rank_metrics_clear(&metrics);
    assert_int_equal(all, 0);
}

TEST(how_late_a_rank_is_is_told_by_its_agent_and_no_other_name_of_ours)
{
    size_t all = 0;
    struct rank_metrics metrics = {.all = &all};

    begin(4);
    tell(8, CT_METRIC_LATE, 0.5);
    tell(8, "ctrun_rank_late_second", 1);
    tell(8, CT_METRIC_LATE "s", 1);
    assert_int_equal(rank_metrics_on_metrics(&metrics, &message, 8, 1, false), 2);
    assert_int_equal(metrics.count, 1);
    assert_string_equal(metrics.ranks[0].list[0].name, CT_METRIC_LATE);
    rank_metrics_clear(&metrics);
}

TEST(a_later_world_replaces_them_and_an_earlier_one_is_not_heard)
{
    size_t all = 5; /* of another run */
    struct rank_metrics metrics = {.all = &all};

    begin(4);
    tell(0, "a", 1);
    tell(1, "a", 1);
    assert_int_equal(rank_metrics_on_metrics(&metrics, &message, 0, 2, false), 0);
    begin(5);
    tell(0, "b", 1);
    assert_int_equal(rank_metrics_on_metrics(&metrics, &message, 0, 1, false), 0);
    assert_int_equal(metrics.count, 1);
    assert_string_equal(metrics.ranks[0].list[0].name, "b");
    begin(4);
    tell(0, "c", 1);
    assert_int_equal(rank_metrics_on_metrics(&metrics, &message, 0, 2, false), 1);
    assert_int_equal(metrics.count, 1);
    rank_metrics_clear(&metrics);
    assert_int_equal(all, 5);
}

TEST(there_is_room_for_so_many_and_those_that_are_here_still_change)
{
    size_t all = 0;
    struct rank_metrics metrics = {.all = &all};
    char name[CT_METRIC_NAME_MAX];
    size_t left_out = 0;

    for (int i = 0; i < CT_METRICS_MAX; i++) { /* fills the share of a rank */
        (void)ct_format(name, sizeof name, "m%d", i);
        begin(1);
        tell(0, name, 1);
        assert_int_equal(rank_metrics_on_metrics(&metrics, &message, 0, 1, false), 0);
    }
    begin(1);
    tell(0, "more", 1);
    assert_int_equal(rank_metrics_on_metrics(&metrics, &message, 0, 1, false), 1);

    for (int rank = 1; rank <= RANK_METRICS_MAX; rank++) {
        begin(1);
        tell(rank, "loss", rank);
        left_out += rank_metrics_on_metrics(&metrics, &message, 0, INT32_MAX, false);
    }
    assert_int_equal(left_out, CT_METRICS_MAX);
    assert_int_equal(all, RANK_METRICS_MAX);
    assert_int_equal(metrics.rank_count, RANK_METRICS_MAX - CT_METRICS_MAX + 1);
    begin(1);
    tell(1, "loss", -1);
    assert_int_equal(rank_metrics_on_metrics(&metrics, &message, 0, INT32_MAX, false),
                     0);
    assert_true(metrics.ranks[1].list[0].value == -1);
    begin(2);
    tell(RANK_METRICS_MAX, "loss", 1);
    assert_int_equal(rank_metrics_on_metrics(&metrics, &message, 0, INT32_MAX, false),
                     0);
    assert_int_equal(all, 1);
    rank_metrics_clear(&metrics);
}

/* From the agent of group rank 0. A metric of a program never gets the label of a node. */
TEST(those_of_nodes_have_one_name)
{
    size_t all = 0;
    struct rank_metrics metrics = {.all = &all};
    struct ct_metrics mixed = {.generation = 1,
                               .count = 3,
                               .list = {{1, CT_METRIC_NODE_LATE, 0},
                                        {0, "loss", 0},
                                        {2, CT_METRIC_NODE_LATE, 0}}};

    assert_true(rank_metrics_are_of_nodes(&mixed));
    assert_int_equal(rank_metrics_on_metrics(&metrics, &mixed, 0, 2, true), 2);
    assert_int_equal(metrics.count, 1);
    assert_int_equal(metrics.ranks[0].rank, 1);
    assert_int_equal(rank_metrics_on_metrics(&metrics, &mixed, 0, 2, false), 2);
    rank_metrics_clear(&metrics);
}
