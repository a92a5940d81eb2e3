/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "rendezvous/report/poison.h"
#include "tests/lib/test.h"

/* Rank `rank` reports that it works on `count` ids from `first` on. */
static void tell(struct poison *poison, uint64_t generation, int rank, uint64_t first,
                 int count)
{
    struct ct_samples samples = {.generation = generation, .rank = rank};

    samples.count = (uint8_t)count;
    samples.total = (uint64_t)count;
    for (int i = 0; i < count; i++)
        samples.list[i].id = first + (uint64_t)i;
    poison_add(poison, &samples);
}

/* What is added to a root cause; empty: nothing. */
static const char *die(struct poison *poison, uint64_t generation, int rank)
{
    static struct ct_failure failure;
    const char *text;

    failure = (struct ct_failure){.generation = generation, .rank = rank};
    poison_on_root(poison, &failure);
    poison_add_fact(poison, &failure);
    poison_add_fact(poison, &failure); /* a second call adds nothing */
    text = ct_facts_find(&failure.facts, CT_FACT_AGAIN);
    assert_int_equal(failure.facts.count, text != NULL);
    return text ? text : "";
}

TEST(the_same_samples_at_two_deaths_are_named)
{
    struct poison poison = {0};

    tell(&poison, 1, 0, 10, 4);
    assert_string_equal(die(&poison, 1, 0), "");
    tell(&poison, 2, 3, 13, 4); /* another rank and batch; one id is in both */
    assert_string_equal(
        die(&poison, 2, 3),
        "the same sample (13) was being processed at both deaths: rank 0 "
        "in generation 1, rank 3 now");
    tell(&poison, 3, 1, 13, 12);
    assert_string_equal(
        die(&poison, 3, 1),
        "the same samples (13, 14, 15, 16) were being processed at both deaths: "
        "rank 3 in generation 2, rank 1 now");
}

TEST(other_samples_and_none_are_not_named)
{
    struct poison poison = {0};

    tell(&poison, 1, 0, 10, 4);
    assert_string_equal(die(&poison, 1, 0), "");
    tell(&poison, 2, 0, 20, 4);
    assert_string_equal(die(&poison, 2, 0), "");
    assert_string_equal(die(&poison, 3, 0), ""); /* no report in this round */
    tell(&poison, 4, 1, 10, 4);
    assert_string_equal(die(&poison, 4, 0), ""); /* nor has this rank */
    tell(&poison, 5, 1, 10, 4);
    assert_string_equal(die(&poison, 5, -1), ""); /* a node has no samples */
}

TEST(who_was_killed_by_ctrunctl_chaos_does_not_count)
{
    struct ct_failure failure = {.generation = 1, .rank = 0};
    struct poison poison = {0};

    assert_true(ct_facts_add(&failure.facts, CT_FACT_CHAOS, "killed"));
    tell(&poison, 1, 0, 10, 4);
    poison_on_root(&poison, &failure);
    tell(&poison, 2, 0, 10, 4);
    assert_string_equal(die(&poison, 2, 0), "");
    failure.generation = 3;
    tell(&poison, 3, 0, 10, 4);
    poison_on_root(&poison, &failure);
    poison_add_fact(&poison, &failure);
    assert_null(ct_facts_find(&failure.facts, CT_FACT_AGAIN));
}

TEST(what_a_victim_works_on_is_not_that_of_the_root_cause)
{
    struct poison poison = {0};

    for (int rank = 0; rank < 2 * POISON_REPORTS_MAX; rank++)
        tell(&poison, 1, rank, 100 * (uint64_t)rank, 4);
    assert_string_equal(die(&poison, 1, 0), "");
    /* Rank 1 did not fail in the round before. */
    tell(&poison, 2, 1, 100, 4);
    assert_string_equal(die(&poison, 2, 1), "");
    tell(&poison, 3, 1, 0, 2);
    assert_non_null(strstr(die(&poison, 3, 1), "(0, 1)"));
}

TEST(deaths_are_forgotten_after_so_many)
{
    struct poison poison = {0};

    for (uint64_t generation = 1; generation <= POISON_DEATHS_MAX + 1; generation++) {
        tell(&poison, generation, 0, generation * 100, 4);
        assert_string_equal(die(&poison, generation, 0), "");
    }
    tell(&poison, 50, 0, 100, 4);
    assert_string_equal(die(&poison, 50, 0), "");
    tell(&poison, 51, 0, 400, 4);
    assert_non_null(strstr(die(&poison, 51, 0), "in generation 4"));
}

TEST(many_ids_are_cut_and_full_facts_make_room)
{
    struct poison poison = {0};
    struct ct_failure failure = {.generation = 2};
    char line[64];

    tell(&poison, 1, 0, UINT64_MAX - 63, CT_SAMPLES_MAX);
    assert_string_equal(die(&poison, 1, 0), "");
    tell(&poison, 2, 0, UINT64_MAX - 63, CT_SAMPLES_MAX);
    memset(line, 'x', sizeof line);
    line[sizeof line - 1] = '\0';
    while (ct_facts_add(&failure.facts, CT_FACT_CALLED_BY, line))
        continue;
    poison_on_root(&poison, &failure);
    poison_add_fact(&poison, &failure);
    assert_non_null(ct_facts_find(&failure.facts, CT_FACT_AGAIN));
    assert_non_null(strstr(ct_facts_find(&failure.facts, CT_FACT_AGAIN),
                           "18446744073709551559 and 56 more) were"));
    assert_non_null(ct_facts_find(&failure.facts, CT_FACT_CALLED_BY));
}
