/* SPDX-License-Identifier: Apache-2.0 */
/* Being elected, and the elected server's duties: to renew the lease, to write the journal. */
#include <string.h>

#include "launcher/etcd/election_private.h"

enum {
    RESIGN_MS = 4000,     /* etcd may change its leader; else the lease runs out */
    RESIGN_OWN_MS = 1000, /* the run's own: its members may all be ending */
    JOURNAL_TTL_S = 600,
    JOURNAL_RENEW_MS = 60000,
};

/* ---- Winning ------------------------------------------------------------------------- */

static int grant(struct election *election, int64_t ttl_s, uint64_t deadline_ms,
                 int64_t *lease, struct ctrun_error *err)
{
    struct json_etcd_reply reply;
    int rc = json_etcd_grant(etcd_body(election->etcd), ttl_s);

    if (rc < 0 ||
        (rc = etcd_do(election->etcd, ETCD_GRANT, deadline_ms, &reply, err)) < 0)
        return rc;
    *lease = reply.lease;
    if (reply.code != 0 || reply.lease == 0)
        rc = ct_fail(err, -EPROTO, "etcd granted no lease: %s",
                     *reply.message ? reply.message : "it gave no reason");
    json_etcd_reply_deinit(&reply);
    return rc;
}

/* Writes the key, if the guard holds. */
static int put_key(struct election *election, int64_t create_revision)
{
    const struct json_etcd_op put = {.key = election->leader_key,
                                     .value = election->self,
                                     .length = strlen(election->self),
                                     .lease = election->lease};
    const struct json_etcd_guard guard = {.key = election->leader_key,
                                          .create_revision = create_revision};

    return json_etcd_txn(etcd_body(election->etcd), &guard, &put, 1);
}

/* 1: we have the key. 0: another one has. A try whose answer was lost may have won already:
 * then the key bears our lease. */
static int create_key(struct election *election, struct ctrun_error *err)
{
    struct json_etcd_reply reply;
    int rc = put_key(election, 0);

    if (rc < 0 || (rc = etcd_do(election->etcd, ETCD_TXN,
                                ct_deadline_ms(ELECTION_CALL_MS), &reply, err)) < 0)
        return rc;
    if (reply.code != 0) {
        rc = ct_fail(err, -EPROTO, "etcd: %s", reply.message);
    } else if (reply.succeeded) {
        election->term = reply.revision;
        rc = 1;
    } else if (reply.count > 0 && reply.kvs[0].lease == election->lease) {
        election->term = reply.kvs[0].create_revision;
        rc = 1;
    }
    json_etcd_reply_deinit(&reply);
    return rc;
}

static int check_version(const struct election *election, const struct json_etcd_kv *kv,
                         struct ctrun_error *err)
{
    if (kv->length >= ELECTION_HEAD_BYTES && kv->value[0] == ELECTION_VERSION)
        return 0;
    return ct_fail(err, CTRUN_E_VERSION,
                   "etcd: another version of ctrun wrote the journal of run '%s': "
                   "install the same ctrun on all nodes",
                   election->options.run_id);
}

int election_check_journal(struct election *election, uint64_t deadline_ms,
                           struct ctrun_error *err)
{
    struct json_etcd_reply reply;
    int rc = json_etcd_range(etcd_body(election->etcd), election->journal_key);

    if (rc < 0 ||
        (rc = etcd_do(election->etcd, ETCD_RANGE, deadline_ms, &reply, err)) < 0)
        return rc;
    if (reply.count > 0)
        rc = check_version(election, &reply.kvs[0], err);
    json_etcd_reply_deinit(&reply);
    return rc < 0 ? rc : 0;
}

/* Deadline of a call while the lease is what counts. */
static uint64_t call_deadline(const struct election *election)
{
    return ct_deadline_ms(election_call_ms(election->ttl_ms));
}

/* Sets *is_gone only if etcd says so: an error tells nothing about the lease. */
static int keep_alive(struct election *election, int64_t lease, bool *is_gone,
                      int64_t *raft_term, struct ctrun_error *err)
{
    struct json_etcd_reply reply;
    int rc = json_etcd_lease(etcd_body(election->etcd), lease);

    if (rc < 0 || (rc = etcd_do(election->etcd, ETCD_KEEPALIVE, call_deadline(election),
                                &reply, err)) < 0)
        return rc;
    if (reply.code != 0 && reply.code != JSON_ETCD_NOT_FOUND)
        rc = ct_fail(err, -EPROTO, "etcd: %s", reply.message);
    else
        *is_gone = reply.ttl_s <= 0;
    *raft_term = reply.raft_term;
    json_etcd_reply_deinit(&reply);
    return rc;
}

/* The latest time, by our clock, at which the last renewal of the server before us began: a lease
 * ago if its lease has run out, else now (somebody deleted the key, or we never saw the lease).
 * The server before us may have been this one. Call it once we have the key: until then a server
 * unknown to us may have been elected. */
static uint64_t find_served_ms(struct election *election)
{
    struct ctrun_error err;
    bool is_gone = false;
    int64_t raft_term;
    uint64_t served_ms;

    if (election->leader_lease != 0 && election->leader_lease != election->lease)
        (void)keep_alive(election, election->leader_lease, &is_gone, &raft_term, &err);
    served_ms = is_gone ? election_served_ms(ct_now_ms(), election->ttl_ms)
                        : ct_now_ms();
    return served_ms > election->led_ms ? served_ms : election->led_ms;
}

static int take_journal(struct election *election, const struct json_etcd_reply *reply,
                        uint64_t served_ms, struct ctrun_error *err)
{
    const struct json_etcd_kv *kv = reply->count > 0 ? &reply->kvs[0] : NULL;
    const bool has_resigned = kv && kv->length >= ELECTION_HEAD_BYTES && kv->value[1];
    const uint64_t known_ms = kv && election->options.ends_with_run
                                  ? election_sight_served_ms(
                                        &election->sight, kv->mod_revision, served_ms)
                                  : served_ms;
    const uint64_t until_ms = election_speaks_until_ms(election->renewed_ms,
                                                       election->ttl_ms);

    if (kv && check_version(election, kv, err) < 0)
        return CTRUN_E_VERSION;
    return election->options.on_elected(
        election->options.context, (uint64_t)election->term,
        kv ? kv->value + ELECTION_HEAD_BYTES : NULL,
        kv ? kv->length - ELECTION_HEAD_BYTES : 0,
        has_resigned ? ct_now_ms() : known_ms, until_ms, err);
}

static int begin_to_lead(struct election *election, struct ctrun_error *err)
{
    const uint64_t served_ms = find_served_ms(election);
    struct json_etcd_reply reply;
    int rc = grant(election, JOURNAL_TTL_S, ct_deadline_ms(ELECTION_CALL_MS),
                   &election->journal_lease, err);

    if (rc < 0 ||
        (rc = json_etcd_range(etcd_body(election->etcd), election->journal_key)) < 0 ||
        (rc = etcd_do(election->etcd, ETCD_RANGE, ct_deadline_ms(ELECTION_CALL_MS),
                      &reply, err)) < 0)
        return rc;
    pthread_mutex_lock(&election->mutex); /* drop the journal of an earlier term */
    free(election->journal);
    election->journal = NULL;
    election->is_over = false;
    election->written = election->sequence;
    pthread_mutex_unlock(&election->mutex);
    election->journal_renew_ms = ct_deadline_ms(JOURNAL_RENEW_MS);
    election->renew_ms = ct_now_ms();
    election->revision = reply.revision;
    if (reply.code != 0)
        rc = ct_fail(err, -EPROTO, "etcd: %s", reply.message);
    else
        rc = take_journal(election, &reply, served_ms, err);
    json_etcd_reply_deinit(&reply);
    return rc;
}

static void revoke_lease(struct election *election, uint64_t deadline_ms)
{
    struct json_etcd_reply reply;

    if (election->lease == 0 ||
        json_etcd_lease(etcd_body(election->etcd), election->lease) < 0 ||
        etcd_do(election->etcd, ETCD_REVOKE, deadline_ms, &reply, NULL) < 0)
        return; /* it runs out by itself */
    election->lease = 0;
    json_etcd_reply_deinit(&reply);
}

/* A new lease for every try: a key with an old lease is not ours. */
int election_campaign(struct election *election, struct ctrun_error *err)
{
    int rc;

    election->renewed_ms = ct_now_ms();
    rc = grant(election, (int64_t)(election->ttl_ms / 1000),
               ct_deadline_ms(ELECTION_CALL_MS), &election->lease, err);
    if (rc < 0 || (rc = create_key(election, err)) <= 0) {
        revoke_lease(election, ct_deadline_ms(ELECTION_CALL_MS));
        return rc;
    }
    if ((rc = begin_to_lead(election, err)) < 0) {
        revoke_lease(election, ct_deadline_ms(ELECTION_CALL_MS));
        return rc;
    }
    (void)ct_copy(election->leader, sizeof election->leader,
                  election->self); /* same size */
    election->options.on_leader(election->options.context, &election->options.self);
    election->seen_revision = 0; /* we are the server that was elected last */
    election->led_ms = ct_now_ms();
    election_set_state(election, ELECTION_LEADING, "elected");
    return 1;
}

/* ---- Leading ------------------------------------------------------------------------- */

static void step_down(struct election *election, const char *why)
{
    election->is_unwritten = false;
    election->options.on_lost(election->options.context);
    election_report_leader(election, NULL);
    election_set_state(election, ELECTION_LOOKING, why);
}

/* The lease may live and the key be gone all the same: somebody deleted it. And the leader that renewed the lease
 * may have been replaced before (election_rules.h). */
static int check_key(struct election *election, int64_t raft_term, bool *is_gone,
                     struct ctrun_error *err)
{
    const bool writes = election->options.ends_with_run;
    struct json_etcd_reply reply;
    int rc = writes ? put_key(election, election->term)
                    : json_etcd_range(etcd_body(election->etcd), election->leader_key);

    if (rc < 0 || (rc = etcd_do(election->etcd, writes ? ETCD_TXN : ETCD_RANGE,
                                call_deadline(election), &reply, err)) < 0)
        return rc;
    if (reply.code != 0)
        rc = ct_fail(err, -EPROTO, "etcd: %s", reply.message);
    else if (!election_is_renewed(raft_term, reply.raft_term))
        rc = ct_fail(err, -EAGAIN, "etcd has elected another leader meanwhile");
    else if (writes)
        *is_gone = !reply.succeeded;
    else
        *is_gone = reply.count == 0 || reply.kvs[0].create_revision != election->term;
    json_etcd_reply_deinit(&reply);
    return rc;
}

static void renew(struct election *election)
{
    const uint64_t asked_ms = ct_now_ms();
    struct ctrun_error err = {.text = "out of memory"};
    bool is_gone = false;
    int64_t raft_term;
    int rc = keep_alive(election, election->lease, &is_gone, &raft_term, &err);

    if (rc == 0 && !is_gone)
        rc = check_key(election, raft_term, &is_gone, &err);
    if (rc == 0 && is_gone) {
        step_down(election, "the lease or the key is gone");
    } else if (rc == 0) {
        election_log_up(election);
        election->renewed_ms = election->led_ms = asked_ms;
        election->renew_ms = asked_ms + election_renew_ms(election->ttl_ms);
        election->options.on_renewed(
            election->options.context, asked_ms,
            election_speaks_until_ms(asked_ms, election->ttl_ms));
    } else if (rc != -ECANCELED) {
        election->renew_ms = ct_now_ms();
        election_log_down(election, "the lease was not renewed", &err);
    }
}

/* Without a lease the journal is written all the same, but would stay in etcd for ever: asks again
 * soon. */
static void grant_journal_lease(struct election *election)
{
    struct ctrun_error err = {.text = "out of memory"};
    int rc;

    election->journal_lease = 0;
    rc = grant(election, JOURNAL_TTL_S, call_deadline(election),
               &election->journal_lease, &err);
    if (rc == 0)
        election->written = 0; /* write the journal again, with the new lease */
    else
        election->journal_renew_ms = ct_deadline_ms(ELECTION_PAUSE_MS);
    if (rc < 0 && rc != -ECANCELED)
        ct_log_seldom(&election->no_lease, CTRUN_LOG_WARN,
                      "etcd: the run's journal has no lease, asks again: %s", err.text);
}

static void renew_journal(struct election *election)
{
    struct ctrun_error err;
    bool is_gone = election->journal_lease == 0;
    int64_t raft_term;

    election->journal_renew_ms = ct_deadline_ms(JOURNAL_RENEW_MS);
    if (!is_gone)
        (void)keep_alive(election, election->journal_lease, &is_gone, &raft_term, &err);
    if (is_gone)
        grant_journal_lease(election);
}

/* Takes a copy that nobody changes. 1, 0: nothing is new, -ENOMEM. */
static int take_pending(struct election *election, struct ct_buf *out,
                        uint64_t *sequence, bool *is_over)
{
    int rc = 0;

    pthread_mutex_lock(&election->mutex);
    if (election->sequence > election->written && election->journal) {
        *sequence = election->sequence;
        *is_over = election->is_over;
        rc = ct_buf_append(out, election->journal, election->journal_length);
        rc = rc < 0 ? rc : 1;
    }
    pthread_mutex_unlock(&election->mutex);
    return rc;
}

/* Writes the journal if we are still elected, and no newer write of ours is there: a write that we
 * gave up may arrive after the next one. 1; 0: not elected; -EAGAIN: a write that we gave up has
 * been done; or a code. */
static int put_journal(struct election *election, const struct ct_buf *journal,
                       bool is_over, uint64_t deadline_ms, struct ctrun_error *err)
{
    const struct json_etcd_op op = {.key = election->journal_key,
                                    .value = is_over ? NULL : ct_buf_data(journal),
                                    .length = ct_buf_length(journal),
                                    .lease = election->journal_lease};
    const struct json_etcd_guard guard = {.key = election->leader_key,
                                          .create_revision = election->term,
                                          .unchanged = election->journal_key,
                                          .revision = election->revision};
    struct json_etcd_reply reply;
    int rc = json_etcd_txn(etcd_body(election->etcd), &guard, &op, 1);

    if (rc < 0 ||
        (rc = etcd_do(election->etcd, ETCD_TXN, deadline_ms, &reply, err)) < 0)
        return rc;
    if (reply.code == JSON_ETCD_NOT_FOUND)
        election->journal_renew_ms = 0; /* its lease is gone */
    if (reply.code != 0)
        rc = ct_fail(err, -EPROTO, "etcd: %s", reply.message);
    else if (!reply.succeeded && reply.count > 0 &&
             reply.kvs[0].create_revision == election->term)
        rc = -EAGAIN;
    else
        rc = reply.succeeded;
    if (reply.code == 0)
        election->revision = reply.revision;
    json_etcd_reply_deinit(&reply);
    return rc;
}

/* etcd has refused it. Apart from what election_log_down() logs: an etcd that is full renews leases and writes nothing. */
static void log_unwritten(struct election *election, const struct ctrun_error *why)
{
    const bool is_known = election->is_unwell || election->is_unwritten;

    ct_log(is_known ? CTRUN_LOG_DEBUG : CTRUN_LOG_WARN,
           "etcd: the journal was not written: %s", why->text);
    election->is_unwritten |= !is_known;
    election_sleep(election, ct_deadline_ms(ELECTION_PAUSE_MS), false);
}

static void log_written(struct election *election)
{
    if (election->is_unwritten)
        ct_warn("etcd: the journal is written again");
    election->is_unwritten = false;
}

static void write_journal(struct election *election)
{
    struct ctrun_error err = {.text = "out of memory"};
    struct ct_buf journal;
    uint64_t sequence = 0;
    bool is_over = false;
    int rc;

    ct_buf_init(&journal, ELECTION_JOURNAL_MAX_BYTES + ELECTION_HEAD_BYTES);
    rc = take_pending(election, &journal, &sequence, &is_over);
    if (rc == 1)
        rc = put_journal(election, &journal, is_over, call_deadline(election), &err);
    ct_buf_deinit(&journal);
    if (rc == 1) {
        election->written = sequence;
        log_written(election);
        election->options.on_written(election->options.context, sequence);
    } else if (rc == 0 && sequence != 0) {
        step_down(election, "this node no longer holds the key");
    } else if (rc == -EPROTO) {
        log_unwritten(election, &err);
    } else if (rc < 0 && rc != -ECANCELED && rc != -EAGAIN) {
        election_log_down(election, "the journal was not written", &err);
    }
}

static bool has_pending(struct election *election)
{
    bool has;

    pthread_mutex_lock(&election->mutex);
    has = election->sequence > election->written && election->journal;
    pthread_mutex_unlock(&election->mutex);
    return has;
}

/* The next renewal is wanted before it is due. */
static void take_hurry(struct election *election)
{
    const uint64_t soon_ms = election->renewed_ms +
                             election_hurried_ms(election->ttl_ms);

    pthread_mutex_lock(&election->mutex);
    if (election->is_hurried && soon_ms < election->renew_ms)
        election->renew_ms = soon_ms;
    election->is_hurried = false;
    pthread_mutex_unlock(&election->mutex);
}

/* The journal's lease comes before the journal, which cannot be written with one that is gone. */
void election_lead(struct election *election)
{
    while (election->state == ELECTION_LEADING && !election_is_stopping(election)) {
        take_hurry(election);
        if (ct_left_ms(election->renew_ms) == 0)
            renew(election);
        else if (ct_left_ms(election->journal_renew_ms) == 0)
            renew_journal(election);
        else if (has_pending(election))
            write_journal(election);
        else
            election_sleep(election, election->renew_ms, true);
    }
}

/* Writes the journal once more and deletes the key, in one transaction, so that no successor misses
 * that journal. */
void election_resign(struct election *election)
{
    const uint64_t deadline_ms = ct_deadline_ms(
        election->options.ends_with_run ? RESIGN_OWN_MS : RESIGN_MS);
    struct json_etcd_op ops[2] = {{.key = election->journal_key},
                                  {.key = election->leader_key}};
    struct json_etcd_reply reply;
    const struct json_etcd_guard guard = {.key = election->leader_key,
                                          .create_revision = election->term};
    const bool has_journal = election->journal != NULL;

    etcd_rearm(election->etcd);
    if (has_journal && !election->is_over) {
        election->journal[1] = 1; /* the thread has ended: no mutex needed */
        ops[0].value = election->journal;
        ops[0].length = election->journal_length;
        ops[0].lease = election->journal_lease;
    }
    if (json_etcd_txn(etcd_body(election->etcd), &guard, has_journal ? ops : ops + 1,
                      has_journal ? 2 : 1) == 0 &&
        etcd_do(election->etcd, ETCD_TXN, deadline_ms, &reply, NULL) == 0)
        json_etcd_reply_deinit(&reply);
    revoke_lease(election, deadline_ms);
    election_set_state(election, ELECTION_LOOKING, "resigned");
}
