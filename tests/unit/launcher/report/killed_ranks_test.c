/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/test.h"

#include "launcher/report/killed_ranks.h"

static struct killed_ranks killed;

static void begin(void)
{
    killed = (struct killed_ranks){0};
}

static void assert_text(const char *text)
{
    char dst[KILLED_RANKS_TEXT_MAX];

    killed_ranks_format(dst, &killed);
    assert_string_equal(dst, text);
}

TEST(no_killed_rank_is_no_text)
{
    begin();
    assert_text("");
}

TEST(killed_ranks_are_listed_by_number_and_not_in_the_order_of_their_ends)
{
    begin();
    killed_ranks_add(&killed, 5);
    assert_text(
        "rank 5 was killed before it had ended: its checkpoint may be incomplete");
    killed_ranks_add(&killed, 1);
    assert_text("ranks 1, 5 were killed before they had ended: their checkpoint may be "
                "incomplete");
    killed_ranks_add(&killed, 2);
    assert_text(
        "ranks 1-2, 5 were killed before they had ended: their checkpoint may be "
        "incomplete");
}

TEST(of_more_than_16_killed_ranks_the_lowest_16_are_named)
{
    begin();
    for (int rank = 15; rank >= 0; rank--)
        killed_ranks_add(&killed, rank);
    assert_text("ranks 0-15 were killed before they had ended: their checkpoint may be "
                "incomplete");
    killed_ranks_add(&killed, 16);
    assert_text(
        "ranks 0-15 and 1 more were killed before they had ended: their checkpoint "
        "may be incomplete");
    begin();
    for (int rank = 20; rank >= 0; rank--)
        killed_ranks_add(&killed, rank);
    assert_text(
        "ranks 0-15 and 5 more were killed before they had ended: their checkpoint "
        "may be incomplete");
}

TEST(the_longest_list_of_killed_ranks_is_whole)
{
    begin();
    for (int i = 0; i < 1000000; i++)
        killed_ranks_add(&killed, 65000 + i * 2);
    assert_text(
        "ranks 65000, 65002, 65004, 65006, 65008, 65010, 65012, 65014, 65016, 65018, "
        "65020, 65022, 65024, 65026, 65028, 65030 and 999984 more were killed before "
        "they had ended: their checkpoint may be incomplete");
}
