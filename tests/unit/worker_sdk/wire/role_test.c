/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"

#include <string.h>

#include "worker_sdk/wire/role.h"

static const struct ct_join one = {.slots = 3, .role = "default"};
static const struct ct_join several = {
    .slots = 6,
    .role = "a+b+c",
    .roles = {3, {{"a", 3}, {"b", 1}, {"c", 2}}},
};

TEST(a_worker_without_a_list_has_the_role_of_all)
{
    const struct ct_start start = {.role_rank_base = 10, .role_world_size = 20};
    struct ct_role_at at;

    ct_role_find(&at, &one.roles, one.role, &start, 2);
    assert_string_equal(at.name, "default");
    assert_int_equal(at.number, 0);
    assert_int_equal(at.first, 0);
    assert_int_equal(at.rank, 12);
    assert_int_equal(at.world_size, 20);
}

TEST(local_ranks_go_through_the_list_in_its_order)
{
    static const char *const names[] = {"a", "a", "a", "b", "c", "c"};
    static const uint32_t ranks[] = {5, 6, 7, 1, 0, 1};
    static const uint32_t sizes[] = {8, 8, 8, 3, 2, 2};
    const struct ct_start start = {.role_count = 3, .roles = {{5, 8}, {1, 3}, {0, 2}}};

    for (uint32_t i = 0; i < 6; i++) {
        struct ct_role_at at;

        ct_role_find(&at, &several.roles, several.role, &start, i);
        assert_string_equal(at.name, names[i]);
        assert_string_equal(several.roles.list[at.number].name, names[i]);
        assert_int_equal(at.rank, ranks[i]);
        assert_int_equal(at.world_size, sizes[i]);
        assert_true(at.first <= i);
    }
}

TEST(a_list_that_no_node_can_have_is_told)
{
    static const struct ct_join bad[] = {
        {.slots = 3, .roles = {2, {{"a", 3}, {"b", 1}}}},
        {.slots = 3, .roles = {2, {{"a", 1}, {"b", 1}}}},
        {.slots = 2, .roles = {2, {{"a", 2}, {"b", 0}}}},
        {.slots = 2, .roles = {2, {{"a", 1}, {"a", 1}}}},
        {.slots = 2, .roles = {2, {{"a", 1}, {"", 1}}}},
        {.slots = 1, .roles = {2, {{"a", UINT32_MAX}, {"b", 2}}}},
    };

    assert_true(ct_role_list_is_sound(&one.roles, one.slots));
    assert_true(ct_role_list_is_sound(&several.roles, several.slots));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(ct_role_list_is_sound(&bad[i].roles, bad[i].slots));
}
