/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/heirs.h"

#include "tests/lib/test.h"

static struct ct_roster piece(uint16_t total, uint16_t first, uint8_t count)
{
    struct ct_roster roster = {.generation = 7,
                               .min_nodes = 2,
                               .total = total,
                               .first = first,
                               .count = count};

    for (uint8_t i = 0; i < count; i++)
        roster.nodes[i] = (struct ct_roster_node){.key = 100u + first + i,
                                                  .port = 29400,
                                                  .host = "n",
                                                  .addr_count = 2,
                                                  .addrs = {"10.0.0.1", "no address"}};
    return roster;
}

static void pieces_become_a_list_that_knows_this_node(void **state)
{
    struct heirs heirs = {0};
    struct ct_roster first = piece(20, 0, 16), rest = piece(20, 16, 4);
    struct ct_addr addrs[4];

    (void)state;
    heirs_take(&heirs, &first, 117);
    assert_false(heirs_are_known(&heirs));
    heirs_take(&heirs, &rest, 117);
    assert_true(heirs_are_known(&heirs));
    assert_int_equal(heirs.self, 17);
    assert_false(heirs_is_candidate(&heirs, 0)); /* who is lost */
    assert_true(heirs_is_candidate(&heirs, 1));
    assert_int_equal(heirs_find_addrs(&heirs, 1, addrs, 4), 1);
    assert_int_equal(ct_addr_port(&addrs[0]), 29400);
    heirs_clear(&heirs);
}

static void pieces_that_do_not_fit_leave_nothing(void **state)
{
    struct heirs heirs = {0};
    struct ct_roster first = piece(20, 0, 16), twice = piece(20, 0, 16);
    struct ct_roster gap = piece(20, 17, 3), beyond = piece(20, 16, 5);
    struct ct_roster other = piece(20, 16, 4), none = piece(0, 0, 0);
    struct ct_roster huge = piece(UINT16_MAX, 0, 16), headless = piece(3, 0, 3);

    (void)state;
    heirs_take(&heirs, &gap, 117);
    assert_int_equal(heirs.count, 0);
    heirs_take(&heirs, &first, 117);
    heirs_take(&heirs, &gap, 117);
    assert_int_equal(heirs.count, 0);
    heirs_take(&heirs, &first, 117);
    heirs_take(&heirs, &beyond, 117);
    assert_int_equal(heirs.count, 0);
    heirs_take(&heirs, &first, 117);
    other.generation = 8;
    heirs_take(&heirs, &other, 117);
    assert_int_equal(heirs.count, 0);
    heirs_take(&heirs, &huge, 117);
    assert_int_equal(heirs.count, 0);
    headless.leader = 3;
    heirs_take(&heirs, &headless, 101);
    assert_int_equal(heirs.count, 0);
    heirs_take(&heirs, &first, 117);
    heirs_take(&heirs, &twice, 117); /* begins anew */
    assert_int_equal(heirs.taken, 16);
    heirs_take(&heirs, &none, 117);
    assert_int_equal(heirs.count, 0);
}

static void a_list_without_this_node_is_of_no_use(void **state)
{
    struct heirs heirs = {0};
    const struct ct_roster roster = piece(3, 0, 3);

    (void)state;
    heirs_take(&heirs, &roster, 99);
    assert_false(heirs_are_known(&heirs));
    heirs_clear(&heirs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_become_a_list_that_knows_this_node),
        cmocka_unit_test(pieces_that_do_not_fit_leave_nothing),
        cmocka_unit_test(a_list_without_this_node_is_of_no_use),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
