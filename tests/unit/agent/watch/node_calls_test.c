/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of three ranks of a node, merged into the calls of the node. */
#include <errno.h>

#include "agent/watch/node_calls.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

enum {
    RANKS = 3,
    WORLD = 7,
    OWN = 8,
    MAX = 64
};

struct node {
    struct straggler *given;
    struct node_calls calls;
    struct straggler_call out[MAX];
    int count;
};

static void begin(struct node *node)
{
    *node = (struct node){.given = straggler_create(RANKS)};
    assert_non_null(node->given);
}

static struct straggler_call at(uint64_t group, int64_t number, uint64_t entered_ns)
{
    return (struct straggler_call){
        .group = group, .number = number, .entered_ns = entered_ns, .shape = 5};
}

static void give(struct node *node, int rank, const struct straggler_call *calls,
                 int count)
{
    assert_int_equal(straggler_give(node->given, rank, calls, count), 0);
}

static void take(struct node *node, int max)
{
    node->count = node_calls_take(&node->calls, node->given, node->out, max);
}

static void check(const struct node *node, int index, uint64_t group, int64_t number,
                  uint64_t entered_ns)
{
    assert_true(index < node->count);
    assert_int_equal(node->out[index].group, group);
    assert_int_equal(node->out[index].number, number);
    assert_int_equal(node->out[index].entered_ns, entered_ns);
    assert_int_equal(node->out[index].shape, 5);
}

TEST(a_call_is_entered_when_the_last_rank_enters_it)
{
    struct node node;

    begin(&node);
    give(&node, 0, (struct straggler_call[]){at(WORLD, 1, 10), at(WORLD, 2, 30)}, 2);
    give(&node, 1, (struct straggler_call[]){at(WORLD, 1, 12), at(WORLD, 2, 33)}, 2);
    give(&node, 2, (struct straggler_call[]){at(WORLD, 1, 11), at(WORLD, 2, 31)}, 2);
    take(&node, MAX);
    assert_int_equal(node.count, 2);
    check(&node, 0, WORLD, 1, 12);
    check(&node, 1, WORLD, 2, 33);
    assert_int_equal(node.calls.last_rank, 1);
    straggler_destroy(node.given);
}

TEST(one_that_a_member_has_not_made_waits_for_it_and_is_told_once)
{
    const struct straggler_call both[] = {at(WORLD, 1, 10), at(WORLD, 2, 30)};
    struct node node;

    begin(&node);
    give(&node, 0, both, 2);
    give(&node, 1, both, 1);
    give(&node, 2, both, 2);
    take(&node, MAX);
    assert_int_equal(node.count, 1);
    check(&node, 0, WORLD, 1, 10);
    give(&node, 1, both, 2); /* a recorder repeats the old ones */
    take(&node, MAX);
    assert_int_equal(node.count, 1);
    check(&node, 0, WORLD, 2, 30);
    take(&node, MAX);
    assert_int_equal(node.count, 0);
    assert_int_equal(node.calls.last_rank, -1);
    straggler_destroy(node.given);
}

TEST(who_is_not_in_a_group_is_not_waited_for)
{
    struct node node;

    begin(&node);
    give(&node, 0, (struct straggler_call[]){at(WORLD, 1, 10)}, 1);
    give(&node, 1, (struct straggler_call[]){at(OWN, 4, 5), at(WORLD, 1, 11)}, 2);
    give(&node, 2, (struct straggler_call[]){at(WORLD, 1, 9), at(OWN, 4, 15)}, 2);
    take(&node, MAX);
    assert_int_equal(node.count, 2);
    check(&node, 0, WORLD, 1, 11); /* in order of time */
    check(&node, 1, OWN, 4, 15);
    straggler_destroy(node.given);
}

TEST(a_rank_alone_is_a_node)
{
    struct node node;

    begin(&node);
    give(&node, 2, (struct straggler_call[]){at(WORLD, 1, 9)}, 1);
    take(&node, MAX);
    assert_int_equal(node.count, 1);
    check(&node, 0, WORLD, 1, 9);
    assert_int_equal(node.calls.last_rank, 2);
    straggler_destroy(node.given);
}

TEST(of_many_the_last_are_told)
{
    struct straggler_call calls[MAX];
    struct node node;

    begin(&node);
    for (int i = 0; i < MAX; i++)
        calls[i] = at(WORLD, i + 1, (uint64_t)i);
    give(&node, 0, calls, MAX);
    take(&node, 3);
    assert_int_equal(node.count, 3);
    check(&node, 0, WORLD, MAX - 2, MAX - 3);
    check(&node, 2, WORLD, MAX, MAX - 1);
    straggler_destroy(node.given);
}

TEST(more_groups_than_there_is_room_for_are_left_out)
{
    struct straggler_call calls[STRAGGLER_GROUPS_MAX + 1];
    struct node node;
    struct straggler_call out[STRAGGLER_GROUPS_MAX + 1];

    begin(&node);
    for (int i = 0; i <= STRAGGLER_GROUPS_MAX; i++)
        calls[i] = at((uint64_t)i, 1, (uint64_t)i);
    give(&node, 0, calls, STRAGGLER_GROUPS_MAX + 1);
    assert_int_equal(
        node_calls_take(&node.calls, node.given, out, STRAGGLER_GROUPS_MAX + 1),
        STRAGGLER_GROUPS_MAX);
    straggler_destroy(node.given);
}

TEST(without_memory_nothing_is_taken_and_no_call_is_lost)
{
    struct straggler_call out[MAX];
    struct node node;

    begin(&node);
    give(&node, 2, (struct straggler_call[]){at(WORLD, 1, 9)}, 1);
    for (size_t n = 1; n <= 4; n++) {
        ct_alloc_fail_at(n);
        assert_int_equal(node_calls_take(&node.calls, node.given, out, MAX), -ENOMEM);
    }
    ct_alloc_fail_at(0);
    take(&node, MAX);
    assert_int_equal(node.count, 1);
    check(&node, 0, WORLD, 1, 9);
    straggler_destroy(node.given);
}
