/* SPDX-License-Identifier: Apache-2.0 */
/* Who of several workers holds up the others. */
#include "agent/hang.h"
#include "tests/lib/test.h"

enum {
    LIMIT_MS = 1000
};

static int find(const struct hang_rank *ranks, int count, uint64_t now_ms,
                struct hang_report *report)
{
    uint64_t wake_ms;
    const int found = hang_find(ranks, count, LIMIT_MS, now_ms, report, &wake_ms);

    assert_true(found || wake_ms > now_ms); /* it must come to an end */
    return found;
}

static void the_one_with_the_fewest_steps_is_the_suspect(void **state)
{
    const struct hang_rank ranks[] = {{42, 500, 'S'}, {41, 400, 'S'}, {42, 500, 'R'}};
    struct hang_report report;

    (void)state;
    assert_false(find(ranks, 3, 1399, &report));
    assert_true(find(ranks, 3, 1400, &report));
    assert_int_equal(report.suspect, 1);
    assert_int_equal(report.furthest, 42);
    assert_int_equal(report.ahead, 2);
}

static void among_equals_the_state_tells(void **state)
{
    static const char order[] = "SRDT";
    struct hang_rank ranks[] = {{7, 0, 'S'}, {7, 0, 'S'}, {7, 0, 'S'}};
    struct hang_report report;

    (void)state;
    for (int doubt = HANG_RUNS; doubt <= HANG_STOPPED; doubt++) {
        ranks[1].state = order[doubt - 1];
        ranks[2].state = order[doubt];
        assert_true(find(ranks, 3, 10 * LIMIT_MS, &report));
        assert_int_equal(report.suspect, 2);
        assert_int_equal(report.doubt, doubt);
        assert_int_equal(report.ahead, 0);
    }
}

static void a_node_of_mere_waiters_lets_the_others_speak_first(void **state)
{
    struct hang_rank ranks[] = {{7, 0, 'S'}, {7, 0, 'S'}};
    struct hang_report report;

    (void)state;
    assert_false(find(ranks, 2, LIMIT_MS, &report));
    assert_true(find(ranks, 2, LIMIT_MS * 3 / 2, &report));
    ranks[1].state = 'T';
    assert_true(find(ranks, 2, LIMIT_MS, &report));
}

static void who_tells_no_steps_is_only_a_suspect_where_others_do(void **state)
{
    struct hang_rank ranks[] = {{-1, 0, 'S'}, {-1, 0, 'R'}};
    struct hang_report report;

    (void)state;
    assert_false(find(ranks, 2, 100 * LIMIT_MS, &report));
    assert_false(find(ranks, 0, 100 * LIMIT_MS, &report));
    ranks[1].step = 3;
    assert_true(find(ranks, 2, 100 * LIMIT_MS, &report));
    assert_int_equal(report.suspect, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_one_with_the_fewest_steps_is_the_suspect),
        cmocka_unit_test(among_equals_the_state_tells),
        cmocka_unit_test(a_node_of_mere_waiters_lets_the_others_speak_first),
        cmocka_unit_test(who_tells_no_steps_is_only_a_suspect_where_others_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
