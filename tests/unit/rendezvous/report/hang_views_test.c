/* SPDX-License-Identifier: Apache-2.0 */
/* What all nodes report of a stuck world, in one line. */
#include "rendezvous/report/hang_views.h"

#include <stdio.h>
#include <string.h>

#include "tests/lib/test.h"

TEST(ranks_of_all_nodes_are_added_up)
{
    static struct ct_failure failure = {.cause = CT_CAUSE_HANG};
    struct hang_views views = {0};

    hang_views_add(&views, &(struct ct_hang_view){.ranks = 4,
                                                  .waiting = 3,
                                                  .lowest = 41,
                                                  .furthest = 42,
                                                  .waiting_ranks = "0-1, 3"});
    hang_views_add_fact(&views, &failure);
    /* Its node's report says it all. */
    assert_int_equal(failure.facts.count, 0);
    hang_views_add(&views, &(struct ct_hang_view){0}); /* it has not looked */
    hang_views_add_fact(&views, &failure);
    assert_int_equal(failure.facts.count, 0);
    hang_views_add(&views,
                   &(struct ct_hang_view){.ranks = 4, .lowest = 7, .furthest = 7});
    hang_views_add(&views, &(struct ct_hang_view){.ranks = 4,
                                                  .waiting = 4,
                                                  .lowest = 42,
                                                  .furthest = 43,
                                                  .waiting_ranks = "8-11"});
    hang_views_add_fact(&views, &failure);
    assert_int_equal(failure.facts.count, 1);
    assert_string_equal(ct_facts_find(&failure.facts, CT_FACT_WORLD),
                        "of 12 ranks on 3 nodes 7 wait in a collective (0-1, 3, 8-11); "
                        "last steps 7 to 43");
}

TEST(a_rank_that_has_timed_out_has_them_too)
{
    static struct ct_failure failure = {.cause = CT_CAUSE_EXIT, .code = 1};
    struct hang_views views = {0};

    hang_views_add(&views,
                   &(struct ct_hang_view){.ranks = 1, .lowest = -1, .furthest = -1});
    hang_views_add(&views, &(struct ct_hang_view){.ranks = 2,
                                                  .waiting = 1,
                                                  .lowest = -1,
                                                  .furthest = -1,
                                                  .waiting_ranks = "3"});
    hang_views_add_fact(&views, &failure); /* another cause */
    assert_int_equal(failure.facts.count, 0);
    failure.error = CTRUN_E_PEER_LOST;
    hang_views_add_fact(&views, &failure);
    assert_string_equal(ct_facts_find(&failure.facts, CT_FACT_WORLD),
                        "of 3 ranks seen on 2 nodes 1 waits in a collective (3)");
}

TEST(ranks_without_room_are_counted)
{
    static struct ct_failure failure = {.cause = CT_CAUSE_HANG};
    struct hang_views views = {0};
    struct ct_hang_view view = {.ranks = 9, .waiting = 8};
    const char *text;

    for (int node = 0; node < 1000; node++) {
        snprintf(view.waiting_ranks, sizeof view.waiting_ranks, "%03d", node);
        hang_views_add(&views, &view);
    }
    hang_views_add_fact(&views, &failure);
    text = ct_facts_find(&failure.facts, CT_FACT_WORLD);
    assert_non_null(text);
    assert_non_null(strstr(text, "of 9000 ranks on 1000 nodes 8000 wait in"));
    /* 51 times "000, " fits into 256 bytes */
    assert_non_null(strstr(text, ", 050 and 7592 more); last steps 0 to 0"));
}

TEST(a_fact_without_room_is_left_out)
{
    static struct ct_failure failure = {.cause = CT_CAUSE_HANG};
    struct hang_views views = {.nodes = 2, .ranks = 2};

    while (ct_facts_add(&failure.facts, CT_FACT_SO, "thirty bytes or so of other text"))
        ;
    hang_views_add_fact(&views, &failure);
    assert_null(ct_facts_find(&failure.facts, CT_FACT_WORLD));
}
