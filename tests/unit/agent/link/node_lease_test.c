/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/link/node_lease.h"

#include "tests/lib/test.h"
#include "worker_sdk/wire/message.h"

enum {
    L = 5000,
    DEADLINE = 4750, /* 5 % less, for wrong clocks */
    PATIENCE = 4000, /* a fifth less, to end workers */
    BEAT = 1000
};

static bool welcome(struct node_lease *lease, uint64_t term, uint64_t greeted_ms,
                    enum node_lease_workers workers)
{
    const struct node_lease_terms terms = {term, L, BEAT};

    return node_lease_welcome(lease, &terms, greeted_ms, workers);
}

static struct node_lease begin(bool is_replaceable)
{
    struct node_lease lease = {.is_replaceable = is_replaceable};

    assert_true(welcome(&lease, 7, 1000, NODE_LEASE_NO_WORKERS));
    return lease;
}

TEST(the_deadline_counts_from_when_the_heartbeat_was_sent)
{
    struct node_lease lease = begin(true);
    const uint64_t first = node_lease_beat(&lease, 2000);
    const uint64_t second = node_lease_beat(&lease, 3000);

    assert_int_equal(node_lease_deadline_ms(&lease), 1000 + DEADLINE);
    assert_true(node_lease_ack(&lease, second, 4500));
    assert_int_equal(node_lease_deadline_ms(&lease), 3000 + DEADLINE);
    /* An older acknowledgement does not shorten it. */
    assert_true(node_lease_ack(&lease, first, 4600));
    assert_int_equal(node_lease_deadline_ms(&lease), 3000 + DEADLINE);
    assert_false(node_lease_is_over(&lease, 3000 + DEADLINE - 1));
    assert_true(node_lease_is_over(&lease, 3000 + DEADLINE));
}

TEST(a_start_counts_after_an_acknowledgement_of_its_server_only)
{
    struct node_lease lease = begin(true);
    uint64_t sequence = node_lease_beat(&lease, 1000);

    assert_false(node_lease_is_fresh(&lease, 1001));
    assert_true(node_lease_ack(&lease, sequence, 1002));
    assert_true(node_lease_is_fresh(&lease, 1003));
    assert_false(node_lease_is_fresh(&lease, 1000 + L / 5 * 4)); /* too long ago */
    assert_true(welcome(&lease, 8, 1100, NODE_LEASE_ENDING));
    assert_false(node_lease_is_fresh(&lease, 1101)); /* the next server's own lease */
}

TEST(a_server_that_has_lost_its_lease_is_not_listened_to)
{
    struct node_lease lease = begin(true);

    assert_false(welcome(&lease, 6, 9000, NODE_LEASE_NO_WORKERS));
    assert_int_equal(node_lease_deadline_ms(&lease), 1000 + DEADLINE);
    assert_true(welcome(&lease, 7, 1200, NODE_LEASE_ENDING));
}

TEST(a_welcome_renews_nothing_where_another_server_may_be_elected)
{
    struct node_lease elected = begin(true), single = begin(false);

    assert_true(welcome(&elected, 8, 3000, NODE_LEASE_ENDING));
    assert_int_equal(node_lease_deadline_ms(&elected), 1000 + DEADLINE);
    assert_true(welcome(&single, 7, 3000, NODE_LEASE_ENDING));
    assert_int_equal(node_lease_deadline_ms(&single), 3000 + DEADLINE);
}

TEST(what_comes_after_the_deadline_renews_nothing_there)
{
    struct node_lease elected = begin(true), single = begin(false);

    (void)node_lease_beat(&elected, 1500);
    (void)node_lease_beat(&single, 1500);
    assert_false(node_lease_ack(&elected, 1, 1000 + DEADLINE));
    assert_true(node_lease_ack(&single, 1, 1000 + DEADLINE)); /* it has waited for us */
}

TEST(only_a_single_server_is_waited_for)
{
    struct node_lease elected = begin(true), single = begin(false);

    (void)node_lease_beat(&elected, 4000);
    (void)node_lease_beat(&single, 4000);
    assert_false(node_lease_has_patience(&elected, 4001));
    assert_true(node_lease_has_patience(&single, 4001));
    assert_true(node_lease_wait(&elected, 1000 + PATIENCE));
    assert_false(node_lease_wait(&single, 1000 + PATIENCE));
    assert_int_equal(node_lease_deadline_ms(&elected), 1000 + DEADLINE);
    assert_int_equal(node_lease_deadline_ms(&single), 4000 + DEADLINE);
    assert_int_equal(node_lease_next_look_ms(&single), 4000 + PATIENCE);
}

TEST(patience_with_a_paused_server_has_an_end)
{
    struct node_lease lease = begin(false);
    const uint64_t end_ms = PATIENCE * CT_PAUSE_LEASES; /* since its last answer */

    assert_true(node_lease_has_patience(&lease, 1000 + end_ms - 1));
    assert_false(node_lease_has_patience(&lease, 1000 + end_ms));
    assert_true(node_lease_ack(&lease, node_lease_beat(&lease, 3000), 3100));
    assert_true(node_lease_has_patience(&lease, 3000 + end_ms - 1));
    assert_false(node_lease_has_patience(&lease, 3000 + end_ms));
}

TEST(silence_counts_from_the_newest_heartbeat_that_was_acknowledged)
{
    struct node_lease lease = begin(true);

    assert_int_equal(node_lease_next_look_ms(&lease), 1000 + PATIENCE);
    assert_int_equal(node_lease_resume_end_ms(&lease), 1000 + PATIENCE);
    assert_true(node_lease_ack(&lease, node_lease_beat(&lease, 2000), 2500));
    assert_false(node_lease_look(&lease, 1000 + PATIENCE));
    assert_int_equal(node_lease_next_look_ms(&lease), 2000 + PATIENCE);
    assert_int_equal(node_lease_resume_end_ms(&lease), 2000 + PATIENCE);
    assert_true(node_lease_look(&lease, 2000 + PATIENCE));
}

/* After the agent itself was stopped it finds nothing from the server; the server gets one more
 * heartbeat period. */
TEST(who_was_stopped_gives_the_server_one_beat)
{
    struct node_lease single = begin(false), elected = begin(true);
    const uint64_t late_ms = 1000 + PATIENCE + 20 * BEAT;

    (void)node_lease_next_look_ms(&single);
    assert_false(node_lease_look(&single, late_ms));
    assert_int_equal(node_lease_next_look_ms(&single), late_ms + BEAT);
    assert_true(node_lease_look(&single, late_ms + BEAT)); /* only once */
    (void)node_lease_next_look_ms(&elected);
    assert_true(node_lease_look(&elected, late_ms)); /* another one may be elected */
}

TEST(it_waits_for_no_answer_beyond_the_deadline)
{
    struct node_lease lease = begin(true);
    const struct node_lease_terms often = {7, L, 100};

    assert_true(node_lease_welcome(&lease, &often, 1000, NODE_LEASE_NO_WORKERS));
    (void)node_lease_next_look_ms(&lease);
    assert_false(node_lease_look(&lease, 1000 + DEADLINE - 50)); /* it was stopped */
    assert_int_equal(node_lease_next_look_ms(&lease), 1000 + DEADLINE);
}

/* The last tenth of the lease is left for the end of the workers that a returning agent has. */
TEST(an_elected_server_has_to_answer_before_the_last_tenth)
{
    struct node_lease lease = begin(true);

    assert_true(welcome(&lease, 8, 3000, NODE_LEASE_RUNNING));
    assert_int_equal(node_lease_next_look_ms(&lease), 1000 + L / 20 + PATIENCE);
    assert_true(welcome(&lease, 9, 3500, NODE_LEASE_ENDING));
    assert_int_equal(node_lease_next_look_ms(&lease), 3500 + PATIENCE);
}

TEST(acknowledgements_of_what_was_never_sent_tell_nothing)
{
    struct node_lease lease = begin(false);

    assert_false(node_lease_ack(&lease, 0, 1001));
    assert_false(node_lease_ack(&lease, 1, 1001));
    for (int i = 0; i < NODE_LEASE_SLOTS + 1; i++)
        (void)node_lease_beat(&lease, 1001);
    assert_false(node_lease_ack(&lease, 1, 1002)); /* its time is not kept */
    assert_true(node_lease_ack(&lease, 2, 1002));
}
