/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank others wait for, when ranks report no steps. */
#include "agent/watch/stuck.h"
#include "agent/watch/rank_list.h"
#include "tests/lib/test.h"

enum {
    LIMIT_MS = 1000
};

#define IN(group_, number_, call_)                                                     \
    .waits = true, .group = (group_), .number = (number_), .call = (call_)

static int64_t entered_of(void *context, int index, const char *group)
{
    return ((const int64_t *)context)[index];
}

static void look(const struct stuck_rank *ranks, int count, const int64_t *entered,
                 struct stuck_report *report)
{
    assert_true(
        stuck_look(ranks, count, entered_of, (void *)(uintptr_t)entered, report));
}

TEST(nobody_is_told_while_nobody_waits)
{
    const struct stuck_rank ranks[] = {{.state = 'R'}, {.state = 'S'}, {.state = 'D'}};
    const int64_t entered[] = {-1, -1, -1};
    struct stuck_report report;

    assert_false(stuck_look(ranks, 3, entered_of, (void *)(uintptr_t)entered, &report));
    assert_true(stuck_due_ms(ranks, 3, LIMIT_MS) == UINT64_MAX);
}

TEST(progress_of_any_rank_is_waited_for)
{
    struct stuck_rank ranks[] = {{.state = 'S', IN("0", 8, "a"), .since_ms = 100},
                                 {.state = 'R', .since_ms = 50}};

    assert_int_equal(stuck_due_ms(ranks, 2, LIMIT_MS), 1100);
    ranks[1].since_ms = 700; /* it has written output */
    assert_int_equal(stuck_due_ms(ranks, 2, LIMIT_MS), 1700);
    ranks[1] = (struct stuck_rank){.state = 'S', IN("0", 8, "a"), .since_ms = 900};
    assert_int_equal(stuck_due_ms(ranks, 2, LIMIT_MS), 1900);
}

TEST(the_one_that_has_not_entered_is_proven)
{
    const struct stuck_rank ranks[] = {{.state = 'S', IN("0", 8, "a")},
                                       {.state = 'R'}, /* in no group: not proven */
                                       {.state = 'S'},
                                       {.state = 'S', IN("0", 8, "a")}};
    const int64_t entered[] = {8, -1, 7, 8};
    struct stuck_report report;

    look(ranks, 4, entered, &report);
    assert_int_equal(report.verdict, STUCK_MISSING);
    assert_int_equal(report.suspect, 2);
    assert_int_equal(report.entered, 7);
    assert_int_equal(report.waiter, 0);
    assert_int_equal(report.waiting, 2);
    assert_int_equal(report.alike, 1);
}

TEST(without_a_recorder_the_state_tells)
{
    static const char order[] = "SRDT";
    const int64_t entered[] = {-1, -1, -1};
    struct stuck_report report;

    for (int i = 0; order[i + 1]; i++) {
        const struct stuck_rank ranks[] = {{.state = 'S', .waits = true},
                                           {.state = order[i + 1]},
                                           {.state = order[i]}};

        look(ranks, 3, entered, &report);
        assert_int_equal(report.verdict, STUCK_FREE);
        assert_int_equal(report.suspect, 1);
        assert_int_equal(report.alike, 2);
    }
}

TEST(a_stopped_one_does_not_wait_whatever_it_was_in)
{
    const struct stuck_rank ranks[] = {{.state = 'S', IN("0", 8, "a")},
                                       {.state = 'T', IN("0", 8, "a")}};
    const int64_t entered[] = {8, 8};
    struct stuck_report report;

    look(ranks, 2, entered, &report);
    assert_int_equal(report.verdict, STUCK_FREE);
    assert_int_equal(report.suspect, 1);
    assert_int_equal(report.doubt, HANG_STOPPED);
}

TEST(the_call_of_the_fewest_is_the_odd_one)
{
    const struct stuck_rank ranks[] = {{.state = 'S', IN("0", 8, "sum 3")},
                                       {.state = 'S', IN("0", 8, "sum 4")},
                                       {.state = 'S', IN("0", 8, "sum 3")}};
    const int64_t entered[] = {8, 8, 8};
    struct stuck_report report;

    look(ranks, 3, entered, &report);
    assert_int_equal(report.verdict, STUCK_UNLIKE);
    assert_int_equal(report.suspect, 1);
    assert_int_equal(report.alike, 1);
    assert_true(report.waiter == 0 || report.waiter == 2);
}

/* As of ranks of another node, whose own node compares them. */
TEST(a_call_without_a_description_is_like_all_others)
{
    const struct stuck_rank ranks[] = {{.state = 'S', IN("0", 8, "a")},
                                       {.state = 'S', IN("0", 7, "a")},
                                       {.state = 'S', IN("0", 8, NULL)}};
    const int64_t entered[] = {8, 7, -1};
    struct stuck_report report;

    look(ranks, 3, entered, &report);
    assert_int_equal(report.verdict, STUCK_MISSING);
    assert_int_equal(report.suspect, 1);
    look(&ranks[1], 2, &entered[1], &report);
    assert_int_equal(report.verdict, STUCK_MISSING);
    assert_int_equal(report.suspect, 0);
}

TEST(one_in_an_earlier_call_of_the_group_is_behind)
{
    const struct stuck_rank ranks[] = {{.state = 'S', IN("0", 8, "a")},
                                       {.state = 'S', IN("0", 7, "a")},
                                       {.state = 'S', IN("0", 8, "a")}};
    const int64_t entered[] = {8, 7, 8};
    struct stuck_report report;

    look(ranks, 3, entered, &report);
    assert_int_equal(report.verdict, STUCK_MISSING);
    assert_int_equal(report.suspect, 1);
}

TEST(where_all_wait_alike_nobody_is_blamed)
{
    const struct stuck_rank ranks[] = {{.state = 'S', IN("0", 8, "a"), .since_ms = 20},
                                       {.state = 'S', IN("0", 8, "a"), .since_ms = 10},
                                       {.state = 'R', .waits = true, .since_ms = 30}};
    const int64_t entered[] = {8, 8, -1};
    struct stuck_report report;

    look(ranks, 3, entered, &report);
    assert_int_equal(report.verdict, STUCK_UNKNOWN);
    assert_int_equal(report.suspect, 1);
    assert_int_equal(report.doubt, HANG_MEETS);
}

TEST(ranks_are_listed_as_people_write_them)
{
    const int ranks[] = {0, 1, 2, 5, 7, 8};
    char text[32], tiny[4];

    rank_list_format(text, sizeof text, ranks, 6);
    assert_string_equal(text, "0-2, 5, 7-8");
    rank_list_format(text, sizeof text, ranks, 0);
    assert_string_equal(text, "");
    rank_list_format(tiny, sizeof tiny, ranks, 6);
    assert_string_equal(tiny, "");
}
