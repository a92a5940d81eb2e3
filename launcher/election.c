/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/election.h"

#include <signal.h>
#include <string.h>

#include "launcher/election_private.h"
#include "worker_sdk/base/alloc.h"

static const char *const state_names[] = {"looking", "watching", "leading"};

void election_set_state(struct election *election, enum election_state state,
                        const char *why)
{
    struct ct_event event;

    if (election->state == state)
        return;
    ct_info("etcd: %s -> %s (%s) run=%s", state_names[election->state],
            state_names[state], why, election->options.run_id);
    ct_event_begin(&event, "election");
    ct_event_str(&event, "from", state_names[election->state]);
    ct_event_str(&event, "to", state_names[state]);
    ct_event_str(&event, "why", why);
    ct_event_int(&event, "term", election->term);
    ct_event_end(&event);
    election->state = state;
    election->says_watch = true;
}

bool election_is_stopping(struct election *election)
{
    return atomic_load(&election->is_stopping);
}

/* ---- Waiting ------------------------------------------------------------------------- */

/* Until the time, a write, or the end. */
void election_nap(struct election *election, uint64_t until_ms, bool wants_writes)
{
    struct timespec at = {.tv_sec = (time_t)(until_ms / 1000),
                          .tv_nsec = (long)(until_ms % 1000) * 1000000L};

    pthread_mutex_lock(&election->mutex);
    while (
        !election_is_stopping(election) && ct_left_ms(until_ms) > 0 &&
        !(wants_writes && election->journal && election->sequence > election->written))
        (void)pthread_cond_timedwait(&election->changed, &election->mutex, &at);
    pthread_mutex_unlock(&election->mutex);
}

void election_complain(struct election *election, const char *what,
                       const struct ctrun_error *why)
{
    ct_log(election->is_unwell ? CTRUN_LOG_DEBUG : CTRUN_LOG_WARN, "etcd: %s: %s", what,
           why->text);
    election->is_unwell = true;
    election_nap(election, ct_deadline_ms(ELECTION_PAUSE_MS), false);
}

void election_praise(struct election *election)
{
    if (election->is_unwell)
        ct_warn("etcd answers again");
    election->is_unwell = false;
}

/* ---- Who hosts ----------------------------------------------------------------------- */

void election_tell_host(struct election *election, const struct json_etcd_kv *kv)
{
    const char *text = kv ? (const char *)kv->value : "";
    struct etcd_host host = {0};

    if (strcmp(text, election->host) == 0)
        return;
    if (kv && etcd_host_parse(&host, text, kv->length) < 0)
        ct_warn("etcd: %s holds no host of ours", election->host_key);
    else if (kv)
        ct_info("etcd: the rendezvous is on host=%s run=%s", host.name,
                election->options.run_id);
    (void)ct_copy(election->host, sizeof election->host, text); /* cut: no host's */
    election->options.on_host(election->options.context, &host);
}

/* Somebody is host, maybe. 1: yes, and we know all up to seen_revision; 0: nobody. */
static int look(struct election *election, uint64_t deadline_ms,
                struct ctrun_error *err)
{
    struct json_etcd_reply reply;
    int rc = json_etcd_range(etcd_body(election->etcd), election->host_key);

    if (rc < 0 ||
        (rc = etcd_do(election->etcd, ETCD_RANGE, deadline_ms, &reply, err)) < 0)
        return rc;
    if (reply.code != 0)
        rc = ct_fail(err, -EPROTO, "etcd: %s", reply.message);
    else if (reply.count > 0)
        rc = 1;
    if (rc == 1) {
        election->seen_revision = reply.revision;
        election_tell_host(election, &reply.kvs[0]);
    }
    json_etcd_reply_deinit(&reply);
    return rc;
}

/* ---- The thread ---------------------------------------------------------------------- */

static void *run(void *context)
{
    struct election *election = context;
    struct ctrun_error err;

    while (!election_is_stopping(election)) {
        int rc = look(election, ct_deadline_ms(ELECTION_CALL_MS), &err);

        if (rc == 1)
            election_set_state(election, ELECTION_WATCHING, "another node is host");
        else if (rc == 0)
            rc = election_campaign(election, &err);
        if (rc < 0 && rc != -ECANCELED)
            election_complain(election, "the host is not known", &err);
        else if (rc >= 0)
            election_praise(election);
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
    if (ct_format(election->host_key, sizeof election->host_key, "%s/%s/host", prefix,
                  options->run_id) < 0 ||
        ct_format(election->journal_key, sizeof election->journal_key, "%s/%s/journal",
                  prefix, options->run_id) < 0 ||
        etcd_host_format(election->self, sizeof election->self, &options->self) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "etcd: run id or prefix is too long");
    return 0;
}

static void init_locks(struct election *election)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&election->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
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
    sigset_t all, before;
    int rc;

    sigfillset(&all); /* signals are the agent's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&election->thread, NULL, run, election);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    election->has_thread = rc == 0;
    return rc == 0 ? 0 : ct_fail(err, -rc, "etcd: start a thread: %s", strerror(rc));
}

int election_start(struct election **out, const struct election_options *options,
                   uint64_t timeout_ms, struct ctrun_error *err)
{
    struct election *election = ct_zalloc(sizeof *election);
    int rc;

    if (!election)
        return ct_fail(err, -ENOMEM, "etcd: out of memory");
    init_locks(election);
    if ((rc = fill(election, options, err)) < 0 ||
        (rc = etcd_open(&election->etcd, options->config, err)) < 0 ||
        (rc = look(election, ct_deadline_ms(timeout_ms), err)) < 0 ||
        (rc == 0 && /* the journal may become ours */
         (rc = election_check_journal(election, ct_deadline_ms(timeout_ms), err)) < 0))
        goto fail;
    *out = election; /* the thread's callbacks find it there */
    if ((rc = start_thread(election, err)) == 0)
        return 0;
fail:
    *out = NULL;
    destroy(election);
    return rc;
}

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
    if (election->state == ELECTION_LEADING)
        election_resign(election);
    destroy(election);
}
