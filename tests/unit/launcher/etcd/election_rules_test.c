/* SPDX-License-Identifier: Apache-2.0 */
/* When the predecessor's last renewal began at the latest. */
#include "launcher/etcd/election_rules.h"
#include "tests/lib/test.h"

enum {
    BY_LEASE_MS = 7000,
    JOURNAL = 40,
};

static uint64_t served_ms(const struct election_sight *sight)
{
    return election_sight_served_ms(sight, JOURNAL, BY_LEASE_MS);
}

TEST(a_lease_that_ran_out_is_counted_with_a_clock_that_is_wrong)
{
    assert_int_equal(election_served_ms(10000, 3000), 7150);
    /* The machine has just started. */
    assert_int_equal(election_served_ms(2000, 3000), 0);
}

TEST(the_last_change_counts_when_all_was_seen)
{
    struct election_sight sight = {0};

    election_see(&sight, 41, 5000);
    election_see(&sight, 42, 5500);
    election_see(&sight, 42, 6500); /* the same revision, read once more */
    sight.end_revision = 43;
    assert_int_equal(served_ms(&sight), 5500);
}

TEST(a_change_that_came_late_does_not_make_it_worse)
{
    const struct election_sight sight = {42, 8000, 43};

    assert_int_equal(served_ms(&sight), BY_LEASE_MS);
}

TEST(what_came_after_the_last_change_may_be_unseen)
{
    struct election_sight sight = {0};

    assert_int_equal(served_ms(&sight), BY_LEASE_MS);
    election_see(&sight, 42, 5500);
    assert_int_equal(served_ms(&sight), BY_LEASE_MS); /* the key's end was not seen */
    sight.end_revision = 43;
    election_see(&sight, 44, 6000); /* another server */
    assert_int_equal(served_ms(&sight), BY_LEASE_MS);
}

TEST(another_host_that_was_unseen_has_written_the_journal)
{
    const struct election_sight sight = {30, 5500, JOURNAL - 1};

    assert_int_equal(served_ms(&sight), BY_LEASE_MS);
}
