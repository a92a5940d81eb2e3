/* SPDX-License-Identifier: Apache-2.0 */
/* Which of several workers the others wait for. */
#include "agent/watch/hang.h"
#include "tests/lib/test.h"

enum {
    LIMIT_MS = 1000
};

static int find(const struct hang_rank *ranks, int count, uint64_t now_ms,
                struct hang_report *report)
{
    uint64_t wake_ms;
    const int found = hang_find(ranks, count, LIMIT_MS, now_ms, report, &wake_ms);

    assert_true(found || wake_ms > now_ms); /* no endless loop */
    return found;
}

TEST(the_one_with_the_fewest_steps_is_the_suspect)
{
    const struct hang_rank ranks[] = {{.step = 42, .stepped_ms = 500, .state = 'S'},
                                      {.step = 41, .stepped_ms = 400, .state = 'S'},
                                      {.step = 42, .stepped_ms = 500, .state = 'R'}};
    struct hang_report report;

    assert_false(find(ranks, 3, 1399, &report));
    assert_true(find(ranks, 3, 1400, &report));
    assert_int_equal(report.suspect, 1);
    assert_int_equal(report.furthest, 42);
    assert_int_equal(report.ahead, 2);
}

TEST(among_equals_the_state_tells)
{
    static const char order[] = "SRDT";
    struct hang_rank ranks[] = {{.step = 7, .stepped_ms = 0, .state = 'S'},
                                {.step = 7, .stepped_ms = 0, .state = 'S'},
                                {.step = 7, .stepped_ms = 0, .state = 'S'}};
    struct hang_report report;

    for (int doubt = HANG_RUNS; doubt <= HANG_STOPPED; doubt++) {
        ranks[1].state = order[doubt - HANG_RUNS];
        ranks[2].state = order[doubt - HANG_WAITS];
        assert_true(find(ranks, 3, 10 * LIMIT_MS, &report));
        assert_int_equal(report.suspect, 2);
        assert_int_equal(report.doubt, doubt);
        assert_int_equal(report.ahead, 0);
    }
}

TEST(a_node_of_mere_waiters_lets_the_others_speak_first)
{
    struct hang_rank ranks[] = {{.step = 7, .stepped_ms = 0, .state = 'S'},
                                {.step = 7, .stepped_ms = 0, .state = 'S'}};
    struct hang_report report;

    assert_false(find(ranks, 2, LIMIT_MS, &report));
    assert_true(find(ranks, 2, LIMIT_MS * 3 / 2, &report));
    ranks[1].state = 'T';
    assert_true(find(ranks, 2, LIMIT_MS, &report));
}

TEST(who_tells_no_steps_is_only_a_suspect_where_others_do)
{
    struct hang_rank ranks[] = {{.step = -1, .stepped_ms = 0, .state = 'S'},
                                {.step = -1, .stepped_ms = 0, .state = 'R'}};
    struct hang_report report;

    assert_false(find(ranks, 2, 100 * LIMIT_MS, &report));
    assert_false(find(ranks, 0, 100 * LIMIT_MS, &report));
    ranks[1].step = 3;
    assert_true(find(ranks, 2, 100 * LIMIT_MS, &report));
    assert_int_equal(report.suspect, 0);
}

TEST(who_has_not_entered_the_collective_is_the_suspect)
{
    struct hang_rank ranks[] = {{.step = 7, .state = 'S', .waits = true},
                                {.step = 7, .state = 'S'},
                                {.step = 7, .state = 'R', .waits = true}};
    struct hang_report report;

    /* It is on this node: reported at once. */
    assert_true(find(ranks, 3, LIMIT_MS, &report));
    assert_int_equal(report.suspect, 1);
    assert_int_equal(report.waiting, 2);
    assert_int_equal(report.doubt, HANG_WAITS);
    ranks[1].waits = true;
    assert_false(find(ranks, 3, LIMIT_MS, &report)); /* on another node: later */
    assert_true(find(ranks, 3, LIMIT_MS * 3 / 2, &report));
    assert_int_equal(report.waiting, 0);
    assert_int_equal(report.doubt, HANG_MEETS);
}
