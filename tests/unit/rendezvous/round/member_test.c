/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "rendezvous/round/master.h"
#include "rendezvous/round/member.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/alloc.h"

static struct member *add(struct member_table *table, uint64_t id, const char *role,
                          uint32_t slots)
{
    struct member_link link = {.id = id};
    struct member *member = member_add(table, &link);

    assert_non_null(member);
    member->state = MEMBER_READY;
    member->join.node_rank_hint = -1;
    member->join.slots = slots;
    snprintf(member->join.role, sizeof member->join.role, "%s", role);
    return member;
}

TEST(members_are_found_by_id_whatever_was_removed)
{
    struct member_table table = {0};

    for (uint64_t id = 1; id <= 100; id++)
        add(&table, id, "default", 1);
    for (uint64_t id = 2; id <= 100; id += 2)
        member_remove(&table, id);
    member_remove(&table, 2);
    assert_int_equal(table.count, 50);
    for (uint64_t id = 1; id <= 101; id++) {
        const struct member *member = member_find(&table, id);

        assert_int_equal(member != NULL, id % 2 == 1 && id <= 100);
        assert_true(!member || member->link.id == id);
    }
    member_table_deinit(&table);
}

TEST(a_failed_allocation_adds_nothing)
{
    struct member_link link = {.id = 1};
    struct member_table table = {0};

    for (size_t n = 1; n <= 2; n++) {
        ct_alloc_fail_at(n);
        assert_null(member_add(&table, &link));
        assert_int_equal(table.count, 0);
    }
    ct_alloc_fail_at(0);
    assert_non_null(member_add(&table, &link));
    member_table_deinit(&table);
}

TEST(survivors_keep_their_place_when_there_are_too_many)
{
    struct member_table table = {0};
    struct member *world[4];

    for (uint64_t id = 1; id <= 4; id++)
        add(&table, id, "default", 1);
    table.list[3]->is_survivor = true;
    assert_int_equal(member_choose(&table, 2, world), 2);
    assert_int_equal(world[0]->link.id, 1);
    assert_int_equal(world[1]->link.id, 4);
    member_table_deinit(&table);
}

/* Rank 0's node has the worker store and its checkpoints: it stays, however late it arrived. */
TEST(the_lowest_ranks_stay_when_a_world_shrinks)
{
    struct member_table table = {0};
    struct member *world[4];

    for (uint64_t id = 1; id <= 4; id++) {
        struct member *member = add(&table, id, "default", 1);

        member->is_survivor = true;
        member->start.group_rank = 4 - (uint32_t)id;
        member->join.node_rank_hint = 4 - (int32_t)id;
    }
    assert_int_equal(member_choose(&table, 2, world), 2);
    assert_int_equal(world[0]->link.id, 4);
    assert_int_equal(world[1]->link.id, 3);
    member_table_deinit(&table);
}

TEST(only_ready_members_are_chosen_in_the_order_of_the_world)
{
    struct member_table table = {0};
    struct member *world[5];

    for (uint64_t id = 1; id <= 5; id++)
        add(&table, id, "default", 1);
    table.list[0]->state = MEMBER_CONNECTED;
    table.list[2]->join.is_endpoint = 1;
    table.list[3]->join.node_rank_hint = 7;
    table.list[4]->join.node_rank_hint = 2;
    assert_int_equal(member_choose(&table, 9, world), 4);
    assert_int_equal(world[0]->link.id, 5);
    assert_int_equal(world[1]->link.id, 4);
    assert_int_equal(world[2]->link.id, 3);
    assert_int_equal(world[3]->link.id, 2);
    member_table_deinit(&table);
}

TEST(nodes_with_the_same_number_come_one_after_the_other)
{
    struct member_table table = {0};
    struct member *world[3];

    for (uint64_t id = 1; id <= 3; id++)
        add(&table, id, "default", 1)->join.node_rank_hint = 0;
    table.list[2]->join.is_endpoint = 1;
    assert_int_equal(member_choose(&table, 3, world), 3);
    assert_int_equal(world[0]->link.id, 3);
    assert_int_equal(world[1]->link.id, 1);
    assert_int_equal(world[2]->link.id, 2);
    member_table_deinit(&table);
}

/* The example of the specification: roles and slots a/2, b/3, a/1. */
TEST(ranks_count_over_all_roles_and_role_ranks_within_one)
{
    struct member_table table = {0};
    struct member *world[3];

    add(&table, 1, "a", 2);
    add(&table, 2, "b", 3);
    add(&table, 3, "a", 1);
    assert_int_equal(member_choose(&table, 3, world), 3);
    member_assign_ranks(world, 3);
    for (uint32_t i = 0; i < 3; i++) {
        static const uint32_t base[] = {0, 2, 5}, role_base[] = {0, 0, 2};

        assert_int_equal(world[i]->start.group_rank, i);
        assert_int_equal(world[i]->start.group_world_size, 3);
        assert_int_equal(world[i]->start.world_size, 6);
        assert_int_equal(world[i]->start.rank_base, base[i]);
        assert_int_equal(world[i]->start.role_rank_base, role_base[i]);
        assert_int_equal(world[i]->start.role_world_size, 3);
    }
    member_table_deinit(&table);
}

static void add_role(struct member *member, const char *name, uint32_t slots)
{
    struct ct_role *role = &member->join.roles.list[member->join.roles.count++];

    snprintf(role->name, sizeof role->name, "%s", name);
    role->slots = slots;
}

/* Nodes: a/2 and b/1, then c/1 alone, then b/2 and a/3. */
TEST(a_node_with_several_roles_has_a_place_in_each)
{
    static const struct ct_role_place places[3][2] = {
        {{0, 5}, {0, 3}}, {{0, 1}, {0, 0}}, {{1, 3}, {2, 5}}};
    struct member_table table = {0};
    struct member *world[3];

    add(&table, 1, "a+b", 3);
    add(&table, 2, "c", 1);
    add(&table, 3, "b+a", 5);
    add_role(table.list[0], "a", 2);
    add_role(table.list[0], "b", 1);
    add_role(table.list[2], "b", 2);
    add_role(table.list[2], "a", 3);
    /* The second does not depend on the first. */
    for (int round = 0; round < 2; round++) {
        assert_int_equal(member_choose(&table, 3, world), 3);
        member_assign_ranks(world, 3);
        assert_int_equal(world[2]->start.rank_base, 4);
        assert_int_equal(world[2]->start.world_size, 9);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(world[i]->start.role_count, i == 1 ? 0 : 2);
            for (int j = 0; j < 2; j++) {
                assert_int_equal(world[i]->start.roles[j].rank_base,
                                 places[i][j].rank_base);
                assert_int_equal(world[i]->start.roles[j].world_size,
                                 places[i][j].world_size);
            }
        }
        assert_int_equal(world[1]->start.role_rank_base, 0);
        assert_int_equal(world[1]->start.role_world_size, 1);
    }
    member_table_deinit(&table);
}

/* ---- MASTER_ADDR ------------------------------------------------------------------------- */

struct place {
    const char *host, *seen_as, *reached_at, *local_addr;
};

static void assert_master(const char *expected, const struct place *places,
                          size_t count)
{
    struct member members[3] = {0}, *world[3];
    char master[CT_HOST_MAX];

    for (size_t i = 0; i < count; i++) {
        struct member *member = world[i] = &members[i];
        const char *local = places[i].local_addr ? places[i].local_addr : "";

        snprintf(member->link.host, sizeof member->link.host, "%s", places[i].host);
        snprintf(member->link.seen_as, sizeof member->link.seen_as, "%s",
                 places[i].seen_as);
        snprintf(member->link.reached_at, sizeof member->link.reached_at, "%s",
                 places[i].reached_at);
        snprintf(member->join.local_addr, sizeof member->join.local_addr, "%s", local);
    }
    master_choose(master, world, count);
    assert_string_equal(master, expected);
}

TEST(the_master_address_is_one_that_every_node_can_reach)
{
    static const struct place said[] = {{"a", "127.0.0.1", "127.0.0.1", "ib0.a"},
                                        {"b", "10.0.0.2", "10.0.0.1", NULL}};
    static const struct place alone[] = {{"a", "10.0.0.1", "10.0.0.9", NULL}};
    static const struct place one_host[] = {{"a", "127.0.0.1", "127.0.0.1", NULL},
                                            {"a", "10.0.0.1", "10.0.0.1", NULL}};
    static const struct place far_host[] = {{"a", "10.0.0.1", "10.0.0.9", NULL},
                                            {"a", "10.0.0.1", "10.0.0.9", NULL}};
    static const struct place one_nat[] = {{"a", "10.0.0.1", "10.0.0.9", NULL},
                                           {"b", "10.0.0.1", "10.0.0.9", NULL}};
    static const struct place beside[] = {{"a", "127.0.0.1", "127.0.0.1", NULL},
                                          {"b", "10.0.0.2", "10.0.0.1", NULL}};
    static const struct place seen[] = {{"b", "10.0.0.2", "10.0.0.1", NULL},
                                        {"a", "::1", "::1", NULL}};

    assert_master("ib0.a", said, 2);
    assert_master("127.0.0.1", alone, 1);
    assert_master("127.0.0.1", one_host, 2);
    assert_master("127.0.0.1", far_host, 2);
    assert_master("10.0.0.1", one_nat, 2);
    assert_master("10.0.0.1", beside, 2);
    assert_master("10.0.0.2", seen, 2);
}
