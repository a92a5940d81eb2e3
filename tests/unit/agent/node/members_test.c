/* SPDX-License-Identifier: Apache-2.0 */
/* Which piece of a list of hosts is kept. */
#include "agent/node/members.h"

#include "tests/lib/test.h"

static void add(struct members *members, uint64_t generation, uint8_t count,
                bool is_last)
{
    const struct ct_members piece = {
        .generation = generation, .count = count, .is_last = is_last};

    members_add(members, &piece);
}

TEST(the_first_piece_of_a_list_is_kept)
{
    struct members members = {0};

    add(&members, 1, 9, false);
    add(&members, 1, 8, false);
    add(&members, 1, 3, true);
    assert_int_equal(members.kept.count, 9);
    add(&members, 2, 4, true);
    assert_int_equal(members.kept.generation, 2);
    assert_int_equal(members.kept.count, 4);
}

TEST(a_whole_list_replaces_that_of_before)
{
    struct members members = {0};

    add(&members, 1, 4, true);
    add(&members, 1, 5, true); /* another node has replaced a lost one */
    assert_int_equal(members.kept.count, 5);
}

TEST(a_list_that_a_break_has_cut_off_is_over)
{
    struct members members = {0};

    add(&members, 1, 9, false);
    members_break(&members);
    add(&members, 2, 4, true);
    assert_int_equal(members.kept.generation, 2);
    assert_int_equal(members.kept.count, 4);
}
