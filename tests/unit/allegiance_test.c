/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/allegiance.h"

#include "tests/lib/test.h"
#include "worker_sdk/wire/takeover.h"

static const uint64_t keys[] = {11, 12, 13, 14, 15, 16};

static void begin(struct allegiance *allegiance, size_t count, uint32_t min_nodes,
                  size_t self, bool is_heir)
{
    const struct ct_heritage heritage = {.generation = 7,
                                         .min_nodes = min_nodes,
                                         .keys = keys,
                                         .count = count,
                                         .self = self};

    assert_int_equal(allegiance_begin(allegiance, &heritage, is_heir), 0);
}

static void a_group_goes_on_only_where_neither_host_nor_another_group_can(void **state)
{
    (void)state;
    for (uint64_t members = 1; members < 40; members++) {
        for (uint64_t min = 1; min <= members; min++) {
            for (uint64_t group = 0; group < members; group++) {
                const uint64_t rest = members - group;

                if (!ct_takeover_may(members, group, min))
                    continue;
                assert_true(group >= min && rest < min); /* no world of the rest */
                assert_false(ct_takeover_may(members, rest, min)); /* nor a group */
                assert_true(2 * group > members); /* two groups share a member */
            }
        }
    }
    assert_false(ct_takeover_may(3, 2, 1));
    assert_true(ct_takeover_is_possible(3, 2));
    assert_false(ct_takeover_is_possible(2, 2));
    assert_false(ct_takeover_is_possible(CT_TAKEOVER_NODES_MAX + 1, 200));
}

static void a_host_is_sure_while_those_it_hears_leave_no_group(void **state)
{
    struct allegiance host = {0};

    (void)state;
    assert_true(allegiance_is_sure(&host, 100, 10)); /* nothing is begun */
    begin(&host, 3, 2, 0, false);
    assert_false(allegiance_is_sure(&host, 100, 10));
    allegiance_hear(&host, 12, 95, 7);
    assert_true(allegiance_is_sure(&host, 100, 10));
    assert_true(allegiance_is_sure(&host, 105, 10));
    assert_false(allegiance_is_sure(&host, 106, 10));
    allegiance_hear(&host, 12, 90, 7); /* an older one takes nothing away */
    assert_true(allegiance_is_sure(&host, 105, 10));
    allegiance_hear(&host, 99, 200, 7); /* a stranger */
    assert_false(allegiance_is_sure(&host, 200, 10));
    allegiance_end(&host);
}

static void an_heir_needs_the_group_that_the_host_must_not_lose(void **state)
{
    struct allegiance host = {0}, heir = {0};

    (void)state;
    begin(&host, 4, 2, 0, false);
    begin(&heir, 4, 2, 2, true);
    allegiance_hear(&host, 12, 100, 7);
    allegiance_hear(&heir, 14, 100, 7);
    assert_true(allegiance_is_sure(&host, 100, 10)); /* two and two: the host's */
    assert_false(allegiance_is_sure(&heir, 100, 10));
    allegiance_hear(&heir, 12, 100, 7);
    assert_true(allegiance_is_sure(&heir, 100, 10));
    allegiance_end(&host);
    allegiance_end(&heir);
}

static void a_world_is_started_only_with_those_who_are_here(void **state)
{
    struct allegiance host = {0};

    (void)state;
    begin(&host, 3, 2, 0, false);
    allegiance_hear(&host, 12, 100, 7);
    assert_true(allegiance_is_sure(&host, 100, 10));
    assert_false(allegiance_may_start(&host, 100, 10));
    allegiance_find(&host, 12)->is_here = true;
    assert_true(allegiance_may_start(&host, 100, 10));
    allegiance_end(&host);
}

static void a_roster_is_over_when_enough_have_a_later_start_or_have_left(void **state)
{
    struct allegiance host = {0};

    (void)state;
    begin(&host, 4, 3, 0, false); /* three of four go on */
    assert_false(allegiance_is_over(&host));
    allegiance_hear(&host, 12, 100, 7);
    assert_false(allegiance_is_over(&host));
    allegiance_hear(&host, 12, 100, 8);
    assert_true(allegiance_is_over(&host));
    begin(&host, 4, 3, 0, false);
    allegiance_release(&host, 13);
    assert_true(allegiance_is_over(&host));
    assert_true(allegiance_is_sure(&host, 1000000, 10));
    allegiance_end(&host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_goes_on_only_where_neither_host_nor_another_group_can),
        cmocka_unit_test(a_host_is_sure_while_those_it_hears_leave_no_group),
        cmocka_unit_test(an_heir_needs_the_group_that_the_host_must_not_lose),
        cmocka_unit_test(a_world_is_started_only_with_those_who_are_here),
        cmocka_unit_test(a_roster_is_over_when_enough_have_a_later_start_or_have_left),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
