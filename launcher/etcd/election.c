/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of an election, its start and its end. */
#include "launcher/etcd/election.h"

#include <string.h>

#include "launcher/etcd/election_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/cond.h"
#include "worker_sdk/base/thread.h"

/* Is a server elected? 1: yes, and we know all up to seen_revision; 0: none. */
static int look(struct election *election, uint64_t deadline_ms,
                struct ctrun_error *err)
{
    struct json_etcd_reply reply;
    int rc = json_etcd_range(etcd_body(election->etcd), election->leader_key);

    if (rc < 0 ||
        (rc = etcd_do(election->etcd, ETCD_RANGE, deadline_ms, &reply, err)) < 0)
        return rc;
    if (reply.code != 0)
        rc = ct_fail(err, -EPROTO, "etcd: %s", reply.message);
    else if (reply.count > 0)
        rc = 1;
    if (rc == 1) {
        election->seen_revision = reply.revision;
        election_see(&election->sight, reply.kvs[0].mod_revision, ct_now_ms());
        election_report_leader(election, &reply.kvs[0]);
    }
    json_etcd_reply_deinit(&reply);
    return rc;
}

/* ---- The thread ---------------------------------------------------------------------- */

static void *run(void *context)
{
    struct election *election = context;

    while (!election_is_stopping(election)) {
        struct ctrun_error err = {.text = "out of memory"};
        int rc = look(election, ct_deadline_ms(ELECTION_CALL_MS), &err);

        if (rc == 1)
            election_set_state(election, ELECTION_WATCHING, "another node is elected");
        else if (rc == 0 && election_has_missed_end(election))
            election_set_state(
                election, ELECTION_WATCHING,
                "the end of the last server is read from etcd's history");
        else if (rc == 0)
            rc = election_campaign(election, &err);
        if (rc < 0 && rc != -ECANCELED)
            election_log_down(election, "no rendezvous server is found or elected",
                              &err);
        else if (rc >= 0)
            election_log_up(election);
        election_watch(election);
        election_lead(election);
    }
    return NULL;
}

/* ---- Life ---------------------------------------------------------------------------- */

static int fill(struct election *election, const struct election_options *options,
                struct ctrun_error *err)
{
    const char *prefix = options->config->prefix;

    election->options = *options;
    election->ttl_ms = (uint64_t)options->config->lease_ttl_s * 1000;
    if (ct_format(election->leader_key, sizeof election->leader_key, "%s/%s/host",
                  prefix, options->run_id) < 0 ||
        ct_format(election->journal_key, sizeof election->journal_key, "%s/%s/journal",
                  prefix, options->run_id) < 0 ||
        server_record_format(election->self, sizeof election->self, &options->self) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "etcd: run id or prefix is too long");
    return 0;
}

static void init_locks(struct election *election)
{

    ct_cond_init(&election->changed);
    pthread_mutex_init(&election->mutex, NULL);
}

static void destroy(struct election *election)
{
    etcd_close(election->etcd);
    pthread_cond_destroy(&election->changed);
    pthread_mutex_destroy(&election->mutex);
    free(election->journal);
    free(election);
}

static int start_thread(struct election *election, struct ctrun_error *err)
{
    const int rc = ct_thread_start(&election->thread, run, election);

    election->has_thread = rc == 0;
    return rc == 0 ? 0 : ct_fail(err, rc, "etcd: start a thread: %s", strerror(-rc));
}

int election_start(struct election **out, const struct election_options *options,
                   uint64_t timeout_ms, struct ctrun_error *err)
{
    struct election *election = ct_zalloc(sizeof *election);
    int rc;

    (void)ct_fail(err, -ENOMEM, "etcd: out of memory"); /* unless a call says more */
    if (!election)
        return -ENOMEM;
    init_locks(election);
    if ((rc = fill(election, options, err)) < 0 ||
        (rc = etcd_open(&election->etcd, options->config, err)) < 0 ||
        (rc = look(election, ct_deadline_ms(timeout_ms), err)) < 0 ||
        (rc == 0 && /* we may continue that journal */
         (rc = election_check_journal(election, ct_deadline_ms(timeout_ms), err)) < 0))
        goto fail;
    *out = election; /* before the thread: its callbacks use *out */
    if ((rc = start_thread(election, err)) == 0)
        return 0;
fail:
    *out = NULL;
    destroy(election);
    return rc;
}

/* Only the last journal counts: one that the thread has not written yet is replaced. */
int election_write(struct election *election, uint64_t sequence, const void *journal,
                   size_t length)
{
    uint8_t *copy;

    if (length > ELECTION_JOURNAL_MAX_BYTES)
        return -EFBIG;
    if (!(copy = ct_zalloc(ELECTION_HEAD_BYTES + length)))
        return -ENOMEM;
    copy[0] = ELECTION_VERSION;
    if (length > 0)
        memcpy(copy + ELECTION_HEAD_BYTES, journal, length);
    pthread_mutex_lock(&election->mutex);
    free(election->journal);
    election->journal = copy;
    election->journal_length = ELECTION_HEAD_BYTES + length;
    election->is_over = length == 0;
    election->sequence = sequence;
    pthread_cond_signal(&election->changed);
    pthread_mutex_unlock(&election->mutex);
    return 0;
}

void election_hurry(struct election *election)
{
    pthread_mutex_lock(&election->mutex);
    election->is_hurried = true;
    pthread_cond_signal(&election->changed);
    pthread_mutex_unlock(&election->mutex);
}

void election_set_members(struct election *election, const struct etcd_config *config)
{
    etcd_set_members(election->etcd, config);
}

/* Wakes the thread in both places where it may wait: for work, and for etcd. The key is given back
 * only after the thread has ended, when no other thread uses the election. */
void election_stop(struct election *election)
{
    if (!election)
        return;
    pthread_mutex_lock(&election->mutex);
    atomic_store(&election->is_stopping, true);
    pthread_cond_signal(&election->changed);
    pthread_mutex_unlock(&election->mutex);
    etcd_wake(election->etcd);
    pthread_join(election->thread, NULL);
    if (election->state == ELECTION_LEADING &&
        !(election->options.ends_with_run && election->is_over))
        election_resign(election);
    destroy(election);
}
