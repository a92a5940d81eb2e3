/* SPDX-License-Identifier: Apache-2.0 */
/* What a candidate makes of etcd's answers. The etcd is the test's, and so is the thread. */
#include "launcher/etcd/election_private.h"
#include "tests/lib/test.h"

enum {
    TTL_MS = 10000,
    OLD_LEASE = 7,
    LEASE = 9,
    TERM = 50,
    OLD_JOURNAL_LEASE = 8,
    NO_SPACE = 8,
    INTERNAL_ERROR = 13
};

static struct json_etcd_reply kept; /* the answer to each keep-alive */
static int grant_code, txn_code;    /* errors of these calls; 0: none */
static struct election election;
static uint64_t served_ms;
static int losses;
static char warning[128]; /* the last one */

/* ---- An etcd that does as it is told --------------------------------------------------------- */

struct ct_buf *etcd_body(struct etcd *etcd)
{
    static struct ct_buf body;

    ct_buf_deinit(&body);
    ct_buf_init(&body, 1 << 20);
    return &body;
}

int etcd_do(struct etcd *etcd, enum etcd_call call, uint64_t deadline_ms,
            struct json_etcd_reply *reply, struct ctrun_error *err)
{
    *reply = (struct json_etcd_reply){.lease = LEASE, .revision = TERM};
    if (call == ETCD_TXN)
        *reply = (struct json_etcd_reply){
            .revision = TERM, .succeeded = txn_code == 0, .code = txn_code};
    if (call == ETCD_GRANT && grant_code)
        *reply = (struct json_etcd_reply){.code = grant_code};
    if (call == ETCD_KEEPALIVE)
        *reply = kept;
    atomic_store(&election.is_stopping, true); /* a leader does one thing */
    return 0;
}

int etcd_open(struct etcd **out, const struct etcd_config *config,
              struct ctrun_error *err)
{
    return -ENOSYS;
}

int etcd_watch(struct etcd *etcd, uint64_t deadline_ms,
               bool (*on_reply)(void *context, const struct json_etcd_reply *reply),
               void *context, struct ctrun_error *err)
{
    return -ENOSYS;
}

void etcd_close(struct etcd *etcd)
{
}

void etcd_set_members(struct etcd *etcd, const struct etcd_config *config)
{
}

void etcd_wake(struct etcd *etcd)
{
}

void etcd_rearm(struct etcd *etcd)
{
}

static void keep_warning(void *context, enum ctrun_log_level level, const char *text)
{
    (void)ct_copy(warning, sizeof warning, text); /* cut is fine */
}

/* ---- The candidate --------------------------------------------------------------------------- */

static void on_leader(void *context, const struct server_record *leader)
{
}

static int on_elected(void *context, uint64_t term, const void *journal, size_t length,
                      uint64_t at_ms, uint64_t until_ms, struct ctrun_error *err)
{
    served_ms = at_ms;
    return 0;
}

static void on_lost(void *context)
{
    losses++;
}

static void on_written(void *context, uint64_t sequence)
{
}

static void begin(struct json_etcd_reply answer)
{
    kept = answer;
    losses = 0;
    election = (struct election){.options = {.run_id = "r",
                                             .on_leader = on_leader,
                                             .on_elected = on_elected,
                                             .on_lost = on_lost,
                                             .on_written = on_written},
                                 .ttl_ms = TTL_MS,
                                 .leader_lease = OLD_LEASE,
                                 .leader_key = "l",
                                 .journal_key = "j",
                                 .self = "s"};
    pthread_mutex_init(&election.mutex, NULL);
}

static void be_elected(struct json_etcd_reply answer)
{
    struct ctrun_error err;

    begin(answer);
    assert_int_equal(election_campaign(&election, &err), 1);
}

/* Until etcd says that it is not, the lease of the server before may be alive. */
TEST(a_lease_of_which_etcd_tells_an_error_may_be_renewed_just_now)
{
    const uint64_t began_ms = ct_now_ms();

    be_elected((struct json_etcd_reply){.code = INTERNAL_ERROR});
    assert_true(served_ms >= began_ms);
}

TEST(a_lease_that_is_gone_was_renewed_long_ago)
{
    const struct json_etcd_reply gone[] = {{.ttl_s = 0}, {.code = JSON_ETCD_NOT_FOUND}};

    for (int i = 0; i < 2; i++) {
        const uint64_t began_ms = ct_now_ms();

        be_elected(gone[i]);
        assert_true(served_ms >= election_served_ms(began_ms, TTL_MS));
        assert_true(served_ms <= election_served_ms(ct_now_ms(), TTL_MS));
    }
}

/* Somebody deleted our key: the lease of the server before us is gone, and our own renewals are
 * recent. */
TEST(a_server_that_is_elected_again_has_just_served)
{
    const uint64_t began_ms = ct_now_ms();
    struct ctrun_error err;

    be_elected((struct json_etcd_reply){.ttl_s = 0});
    assert_true(served_ms < began_ms);
    election.state = ELECTION_LOOKING;
    assert_int_equal(election_campaign(&election, &err), 1);
    assert_true(served_ms >= began_ms);
}

static int renew(struct json_etcd_reply answer)
{
    begin(answer);
    election.state = ELECTION_LEADING;
    election.lease = LEASE;
    election.journal_renew_ms = UINT64_MAX;
    election_lead(&election);
    return losses;
}

TEST(an_error_of_etcd_does_not_end_a_leader)
{
    assert_int_equal(renew((struct json_etcd_reply){.code = INTERNAL_ERROR}), 0);
    assert_int_equal(election.state, ELECTION_LEADING);
    assert_true(election.is_unwell); /* it was logged, and is tried again */
}

TEST(a_leader_whose_lease_is_gone_ends)
{
    assert_int_equal(renew((struct json_etcd_reply){.ttl_s = 0}), 1);
    assert_int_equal(renew((struct json_etcd_reply){.code = JSON_ETCD_NOT_FOUND}), 1);
    assert_int_equal(election.state, ELECTION_LOOKING);
}

/* ---- The journal's lease ---------------------------------------------------------------------- */

static void lead_once(uint64_t journal_renew_ms)
{
    election.state = ELECTION_LEADING;
    election.renew_ms = UINT64_MAX;
    election.journal_renew_ms = journal_renew_ms;
    atomic_store(&election.is_stopping, false);
    election_lead(&election);
}

/* Without a lease the journal would stay in etcd for ever, and cannot be written with one that is gone. */
TEST(a_journal_that_gets_no_lease_asks_again_soon)
{
    begin((struct json_etcd_reply){.ttl_s = 0});
    election.journal_lease = OLD_JOURNAL_LEASE;
    election.written = 1;
    grant_code = INTERNAL_ERROR;
    ct_log_set_sink(keep_warning, NULL, CTRUN_LOG_WARN);
    lead_once(0);
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_ERR);
    grant_code = 0;
    assert_string_equal(warning, "etcd: the run's journal has no lease, asks again: "
                                 "etcd granted no lease: it gave no reason");
    assert_true(election.journal_renew_ms <= ct_now_ms() + ELECTION_PAUSE_MS);
    assert_int_equal(election.journal_lease, 0);
    lead_once(0);
    assert_int_equal(election.journal_lease, LEASE);
    assert_int_equal(election.written, 0); /* it is written again */
}

TEST(a_journal_whose_lease_etcd_does_not_know_gets_another)
{
    uint8_t journal[ELECTION_HEAD_BYTES] = {ELECTION_VERSION};

    begin((struct json_etcd_reply){.ttl_s = 0});
    election.journal = journal;
    election.journal_length = sizeof journal;
    election.journal_lease = OLD_JOURNAL_LEASE;
    election.sequence = 1;
    txn_code = JSON_ETCD_NOT_FOUND;
    lead_once(UINT64_MAX);
    txn_code = 0;
    assert_int_equal(election.journal_renew_ms, 0);
    lead_once(0);
    assert_int_equal(election.journal_lease, LEASE);
}

/* An etcd whose disk is full renews leases and writes nothing. */
TEST(a_journal_that_is_not_written_is_told_once)
{
    uint8_t journal[ELECTION_HEAD_BYTES] = {ELECTION_VERSION};

    begin((struct json_etcd_reply){.ttl_s = 1});
    election.journal = journal;
    election.journal_length = sizeof journal;
    election.sequence = 1;
    txn_code = NO_SPACE;
    ct_log_set_sink(keep_warning, NULL, CTRUN_LOG_WARN);
    lead_once(UINT64_MAX);
    assert_string_equal(warning, "etcd: the journal was not written: etcd: ");
    warning[0] = '\0';
    election_log_up(&election); /* a renewal has succeeded */
    lead_once(UINT64_MAX);
    assert_string_equal(warning, "");
    txn_code = 0;
    lead_once(UINT64_MAX);
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_ERR);
    assert_string_equal(warning, "etcd: the journal is written again");
}

TEST(a_key_that_holds_no_server_is_told_once)
{
    uint8_t garbage[sizeof election.leader + 10];
    const struct json_etcd_kv kv = {.value = garbage, .length = sizeof garbage - 1};

    memset(garbage, 'x', sizeof garbage - 1);
    garbage[sizeof garbage - 1] = '\0';
    begin((struct json_etcd_reply){.ttl_s = 1});
    ct_log_set_sink(keep_warning, NULL, CTRUN_LOG_WARN);
    election_report_leader(&election, &kv);
    assert_string_equal(warning,
                        "etcd: l does not hold the address of a rendezvous server");
    warning[0] = '\0';
    election_report_leader(&election, &kv);
    ct_log_set_sink(NULL, NULL, CTRUN_LOG_ERR);
    assert_string_equal(warning, "");
}
