/* SPDX-License-Identifier: Apache-2.0 */
/* Output and journal of a candidate, with an election and a server that do nothing by themselves. */
#include <errno.h>

#include "launcher/config/config.h"
#include "launcher/etcd/election.h"
#include "launcher/etcd/leader_candidate.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/session/output_commit.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/clock.h"

enum {
    SERVED_MS = 1,
    OVER_MS = 2, /* a lease that has ended */
    BATCH_BYTES = 100000,
};

/* ---- The election and the server ----------------------------------------------------------- */

static struct election {
    struct election_options options;
    size_t length; /* of the journal written last */
    uint64_t sequence;
} the_election;

int election_start(struct election **out, const struct election_options *options,
                   uint64_t timeout_ms, struct ctrun_error *err)
{
    the_election = (struct election){.options = *options};
    *out = &the_election;
    return 0;
}

int election_write(struct election *election, uint64_t sequence, const void *journal,
                   size_t length)
{
    election->length = length;
    election->sequence = sequence;
    return 0;
}

void election_hurry(struct election *election)
{
}

void election_set_members(struct election *election, const struct etcd_config *config)
{
}

/* What its thread has begun is done before it ends. */
void election_stop(struct election *election)
{
    const struct election_options *options = &election->options;

    options->on_renewed(options->context, SERVED_MS, OVER_MS);
    options->on_written(options->context, 1);
}

void server_poke(struct server *server)
{
}

static int lead_rc;

int server_lead(struct server *server, uint64_t term, const void *journal,
                size_t length, uint64_t served_ms, struct ctrun_error *err)
{
    return lead_rc;
}

void server_step_down(struct server *server)
{
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static struct config config;
static struct leader_candidate *candidate;

static int store(unsigned flags, size_t length)
{
    static uint8_t batch[BATCH_BYTES];
    const struct journal_sink *sink = leader_candidate_sink(candidate);

    return sink->store(sink->context, "r", flags, batch, length);
}

/* Elected; as the first server of a run with --ha, or by a site's etcd. */
static void begin(bool serves)
{
    const struct addresses addresses = {0};
    const struct election_options *options = &the_election.options;
    struct ctrun_error err;

    assert_int_equal(leader_candidate_create(&candidate, &config, &err), 0);
    if (serves)
        leader_candidate_serve(candidate, NULL);
    assert_int_equal(leader_candidate_start(candidate, NULL, &addresses, 1, &err), 0);
    assert_int_equal(
        options->on_elected(options->context, 1, NULL, 0, SERVED_MS, OVER_MS, &err), 0);
}

TEST(a_server_that_nobody_can_replace_is_not_bound_to_its_last_lease)
{
    const struct output_commit *commit;

    begin(true);
    commit = leader_candidate_output_commit(candidate);
    assert_int_equal(store(JOURNAL_WHOLE, 10), 0);
    assert_int_equal(store(0, 10), 0);
    leader_candidate_revert(candidate);
    assert_true(output_commit_may_send(commit));
    assert_true(
        output_commit_may_acknowledge(UINT32_MAX, atomic_load(&commit->renewed_ms)));
    leader_candidate_destroy(candidate);
}

TEST(a_journal_without_room_waits_for_a_whole_batch)
{
    for (int serves = 0; serves < 2; serves++) {
        size_t length = 0;
        int rc = 0;

        begin(serves);
        if (serves)
            leader_candidate_revert(candidate);
        assert_int_equal(store(JOURNAL_WHOLE, BATCH_BYTES), 0);
        for (int i = 0; i < 11 && rc == 0; i++) { /* together above 1 MiB */
            length = the_election.length;
            rc = store(0, BATCH_BYTES);
        }
        assert_int_equal(rc, -ENOBUFS);
        assert_int_equal(the_election.length, length); /* nothing of it is there */
        assert_int_equal(store(JOURNAL_WHOLE, BATCH_BYTES), 0);
        assert_int_equal(store(0, BATCH_BYTES), 0);
        leader_candidate_destroy(candidate);
    }
}

/* Its server could not read the journal: the election gives the key back. */
TEST(one_whose_server_does_not_take_over_leads_nothing)
{
    const struct addresses addresses = {0};
    const struct election_options *options = &the_election.options;
    struct ctrun_error err;

    assert_int_equal(leader_candidate_create(&candidate, &config, &err), 0);
    assert_int_equal(leader_candidate_start(candidate, NULL, &addresses, 1, &err), 0);
    lead_rc = -EBADMSG;
    assert_int_equal(options->on_elected(options->context, 1, NULL, 0, SERVED_MS,
                                         ct_deadline_ms(60000), &err),
                     -EBADMSG);
    lead_rc = 0;
    assert_false(leader_candidate_leads(candidate));
    assert_false(output_commit_may_send(leader_candidate_output_commit(candidate)));
    leader_candidate_destroy(candidate);
}
