/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/wire/facts.h"

TEST(the_first_of_a_key_is_found_and_others_are_not)
{
    struct ct_facts facts = {0};

    assert_null(ct_facts_find(&facts, CT_FACT_DO));
    assert_true(ct_facts_add(&facts, CT_FACT_LIKELY, "do"));
    assert_true(ct_facts_add(&facts, CT_FACT_DO, ""));
    assert_true(ct_facts_add(&facts, CT_FACT_DO, "second"));
    assert_int_equal(facts.count, 3);
    assert_string_equal(ct_facts_find(&facts, CT_FACT_LIKELY), "do");
    assert_string_equal(ct_facts_find(&facts, CT_FACT_DO), "");
    assert_string_equal(ct_facts_text(&facts, 2), "second");
    assert_null(ct_facts_find(&facts, CT_FACT_CORE));
}

TEST(a_key_that_is_removed_leaves_room_and_the_others)
{
    struct ct_facts facts = {0};

    assert_true(ct_facts_add(&facts, CT_FACT_DO, "first"));
    assert_true(ct_facts_add(&facts, CT_FACT_SO, "so"));
    assert_true(ct_facts_add(&facts, CT_FACT_DO, "second"));
    ct_facts_remove(&facts, CT_FACT_CORE);
    assert_int_equal(facts.count, 3);
    ct_facts_remove(&facts, CT_FACT_DO);
    assert_int_equal(facts.count, 1);
    assert_int_equal(facts.used, sizeof "so");
    assert_string_equal(ct_facts_find(&facts, CT_FACT_SO), "so");
    assert_null(ct_facts_find(&facts, CT_FACT_DO));
}

TEST(what_does_not_fit_changes_nothing)
{
    struct ct_facts facts = {0}, before;
    char text[CT_FACTS_MAX + 1];

    memset(text, 'x', CT_FACTS_MAX);
    text[CT_FACTS_MAX] = '\0';
    assert_false(ct_facts_add(&facts, CT_FACT_DO, text));
    assert_false(ct_facts_add(&facts, 0, "no key"));
    assert_int_equal(facts.count, 0);
    assert_true(ct_facts_add(&facts, CT_FACT_DO, text + 1)); /* to the last byte */
    before = facts;
    assert_false(ct_facts_add(&facts, CT_FACT_DO, ""));
    assert_memory_equal(&facts, &before, sizeof facts);
    facts = (struct ct_facts){0};
    for (int i = 0; i < CT_FACTS_COUNT_MAX; i++)
        assert_true(ct_facts_add(&facts, CT_FACT_AT, "f"));
    assert_false(ct_facts_add(&facts, CT_FACT_AT, "f"));
}
