/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/etcd/leader_candidate.h"

#include <errno.h>
#include <pthread.h>

#include "launcher/etcd/election.h"
#include "launcher/report/messages.h"
#include "rendezvous/journal/journal.h"
#include "rendezvous/session/output_commit.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    NOTICE_EVERY_MS = 10000,
    LAST_TRY_MS = 500,           /* with less time left, do not try */
    JOURNAL_MAX_BYTES = 1 << 20, /* what election_write() takes */
};

struct leader_candidate {
    const struct config *config;
    struct etcd_config etcd;
    bool is_own; /* `etcd` is the run's own */
    struct election *election;
    struct server *server;
    struct output_commit commit;
    struct journal_sink sink;

    pthread_mutex_t mutex; /* of the fields below */
    struct server_record leader;
    struct ct_buf journal; /* this run's batches since the last whole one, framed */
    uint64_t sequence;
    bool serves;       /* before an election: no other node knows the etcd */
    bool is_elsewhere; /* the journal is in etcd, or being written there */
    bool is_cut;       /* the journal did not fit before it was in etcd */
    bool is_reverting;
    bool leads;
};

/* ---- The journal --------------------------------------------------------------------- */

static int append_batch(struct ct_buf *journal, const uint8_t *batch, size_t length)
{
    uint8_t *at;
    const int rc = ct_buf_reserve(journal, JOURNAL_FRAME_BYTES + length, &at);

    if (rc < 0)
        return rc;
    journal_frame_encode(at, batch, length);
    memcpy(at + JOURNAL_FRAME_BYTES, batch, length);
    ct_buf_commit(journal, JOURNAL_FRAME_BYTES + length);
    return 0;
}

/* While there is no etcd, a journal that does not fit is only noted: it prevents
 * the election (on_elected), not the run. */
static int store_locked(struct leader_candidate *candidate, unsigned flags,
                        const uint8_t *batch, size_t length)
{
    struct ct_buf *journal = &candidate->journal;
    int rc = 0;

    if (flags & (JOURNAL_WHOLE | JOURNAL_END)) {
        ct_buf_consume(journal, ct_buf_length(journal));
        candidate->is_cut = false;
    }
    if (!(flags & JOURNAL_END))
        rc = append_batch(journal, batch, length);
    if (rc == -ENOBUFS && !(flags & JOURNAL_WHOLE))
        return rc; /* a WHOLE batch follows, in place of all */
    if (!candidate->is_elsewhere) {
        candidate->is_cut |= rc < 0;
        return 0;
    }
    atomic_store(&candidate->commit.wanted, ++candidate->sequence);
    return rc < 0 ? rc
                  : election_write(candidate->election, candidate->sequence,
                                   ct_buf_data(journal), ct_buf_length(journal));
}

/* On the server's thread. What the step has to send waits in the output commit until etcd has it. */
static int store(void *context, const char *run_id, unsigned flags,
                 const uint8_t *batch, size_t length)
{
    struct leader_candidate *candidate = context;
    int rc;

    pthread_mutex_lock(&candidate->mutex);
    rc = store_locked(candidate, flags, batch, length);
    pthread_mutex_unlock(&candidate->mutex);
    if (rc == -ENOMEM)
        ct_err("etcd: the journal of run %s cannot be written: out of memory", run_id);
    else if (rc < 0 && (flags & JOURNAL_WHOLE))
        ct_err(
            "etcd: the journal of run %s does not fit: %s; %s is for up to some 2000 "
            "nodes",
            run_id, strerror(-rc), candidate->is_own ? "--ha" : "--rdzv-backend=etcd");
    return rc;
}

/* ---- Callbacks of the election, on its thread ---------------------------------------- */

static void on_leader(void *context, const struct server_record *leader)
{
    struct leader_candidate *candidate = context;

    pthread_mutex_lock(&candidate->mutex);
    candidate->leader = *leader;
    pthread_mutex_unlock(&candidate->mutex);
}

/* Held output is sent once the current journal is in etcd. The server's thread reads the output
 * commit without the mutex: so `wanted` is raised before `kept` is lowered, and the lease
 * (until_ms) is set last. */
static int write_journal(struct leader_candidate *candidate, uint64_t until_ms)
{
    const struct ct_buf *journal = &candidate->journal;
    int rc = 0;

    candidate->is_elsewhere = true;
    atomic_store(&candidate->commit.renewed_ms, 0);
    atomic_store(&candidate->commit.wanted, ++candidate->sequence);
    if (ct_buf_length(journal) > 0)
        rc = election_write(candidate->election, candidate->sequence,
                            ct_buf_data(journal), ct_buf_length(journal));
    atomic_store(&candidate->commit.kept,
                 ct_buf_length(journal) > 0 ? 0 : candidate->sequence);
    atomic_store(&candidate->commit.until_ms, until_ms);
    candidate->leads = rc == 0;
    return rc;
}

/* Nobody else can serve this run: nothing is held, and there is no lease. */
static void speak_freely(struct leader_candidate *candidate)
{
    candidate->is_elsewhere = candidate->leads = false;
    atomic_store(&candidate->commit.kept, UINT64_MAX);
    atomic_store(&candidate->commit.until_ms, UINT64_MAX);
    atomic_store(&candidate->commit.renewed_ms, UINT64_MAX);
}

/* Takes over the predecessor's journal: it is written again under our lease, without the mark that
 * its writer resigned. */
static int take_journal(struct leader_candidate *candidate, const void *journal,
                        size_t length, uint64_t until_ms)
{
    int rc;

    ct_buf_consume(&candidate->journal, ct_buf_length(&candidate->journal));
    if (length > 0 && (rc = ct_buf_append(&candidate->journal, journal, length)) < 0)
        return rc;
    return write_journal(candidate, until_ms);
}

/* Nothing is sent, and nobody is told that this node leads. With the mutex. */
static void fall_silent(struct leader_candidate *candidate)
{
    candidate->leads = false;
    atomic_store(&candidate->commit.until_ms, 0);
    atomic_store(&candidate->commit.renewed_ms, 0);
}

static int on_elected(void *context, uint64_t term, const void *journal, size_t length,
                      uint64_t served_ms, uint64_t until_ms, struct ctrun_error *err)
{
    struct leader_candidate *candidate = context;
    bool serves;
    int rc;

    pthread_mutex_lock(&candidate->mutex);
    serves = candidate->serves;
    if (candidate->is_reverting)
        rc = -ECANCELED;
    else if (!serves)
        rc = take_journal(candidate, journal, length, until_ms);
    else
        rc = candidate->is_cut ? -EFBIG : write_journal(candidate, until_ms);
    pthread_mutex_unlock(&candidate->mutex);
    if (rc < 0)
        return ct_fail(err, rc, "the journal of the run cannot be written: %s",
                       strerror(-rc));
    if (serves)
        return rc;
    rc = server_lead(candidate->server, term, journal, length, served_ms, err);
    if (rc < 0) { /* the election gives the key back */
        pthread_mutex_lock(&candidate->mutex);
        fall_silent(candidate);
        pthread_mutex_unlock(&candidate->mutex);
    }
    return rc;
}

/* After speak_freely() a renewal that was under way limits nothing any more, nor does a write. */
static void on_renewed(void *context, uint64_t asked_ms, uint64_t until_ms)
{
    struct leader_candidate *candidate = context;

    pthread_mutex_lock(&candidate->mutex);
    if (candidate->is_elsewhere) {
        atomic_store(&candidate->commit.renewed_ms, asked_ms);
        atomic_store(&candidate->commit.until_ms, until_ms);
    }
    pthread_mutex_unlock(&candidate->mutex);
    server_poke(candidate->server);
}

static void on_lost(void *context)
{
    struct leader_candidate *candidate = context;
    bool serves;

    pthread_mutex_lock(&candidate->mutex);
    serves = candidate->serves;
    fall_silent(candidate);
    if (serves)
        speak_freely(candidate); /* nobody else can have been elected */
    pthread_mutex_unlock(&candidate->mutex);
    if (serves)
        server_poke(candidate->server);
    else
        server_step_down(candidate->server);
}

static void on_written(void *context, uint64_t sequence)
{
    struct leader_candidate *candidate = context;

    pthread_mutex_lock(&candidate->mutex);
    if (candidate->is_elsewhere)
        atomic_store(&candidate->commit.kept, sequence);
    pthread_mutex_unlock(&candidate->mutex);
    server_poke(candidate->server);
}

/* On the server's thread. */
static void on_owed(void *context)
{
    struct leader_candidate *candidate = context;

    pthread_mutex_lock(&candidate->mutex);
    if (candidate->is_elsewhere)
        election_hurry(candidate->election);
    else
        server_poke(candidate->server); /* nobody can replace it: it may send */
    pthread_mutex_unlock(&candidate->mutex);
}

/* ---- Life ---------------------------------------------------------------------------- */

int leader_candidate_create(struct leader_candidate **out, const struct config *config,
                            struct ctrun_error *err)
{
    struct leader_candidate *candidate = ct_zalloc(sizeof *candidate);

    if (!candidate)
        return ct_fail(err, -ENOMEM, "etcd: out of memory");
    candidate->config = config;
    candidate->etcd = config->rdzv.etcd;
    candidate->is_elsewhere = true;
    candidate->sink = (struct journal_sink){.context = candidate, .store = store};
    output_commit_init(&candidate->commit);
    candidate->commit.on_owed = on_owed;
    candidate->commit.context = candidate;
    ct_buf_init(&candidate->journal, JOURNAL_MAX_BYTES);
    pthread_mutex_init(&candidate->mutex, NULL);
    *out = candidate;
    return 0;
}

void leader_candidate_use(struct leader_candidate *candidate,
                          const struct etcd_config *etcd)
{
    candidate->etcd = *etcd;
    candidate->is_own = true;
}

void leader_candidate_set_members(struct leader_candidate *candidate,
                                  const struct etcd_config *etcd)
{
    if (candidate->election)
        election_set_members(candidate->election, etcd);
}

void leader_candidate_serve(struct leader_candidate *candidate, struct server *server)
{
    candidate->server = server;
    candidate->serves = true;
    speak_freely(candidate);
}

void leader_candidate_stand_down(struct leader_candidate *candidate)
{
    struct output_commit *commit = &candidate->commit;

    pthread_mutex_lock(&candidate->mutex);
    candidate->serves = candidate->leads = candidate->is_cut = false;
    candidate->is_elsewhere = true;
    ct_buf_consume(&candidate->journal, ct_buf_length(&candidate->journal));
    atomic_store(&commit->until_ms, 0);
    atomic_store(&commit->renewed_ms, 0);
    atomic_store(&commit->kept, candidate->sequence);
    atomic_store(&commit->wanted, candidate->sequence);
    pthread_mutex_unlock(&candidate->mutex);
}

/* From then on etcd decides who serves; true only when the journal of all sent output is in
 * etcd. */
bool leader_candidate_commit(struct leader_candidate *candidate)
{
    const struct output_commit *commit = &candidate->commit;
    bool is_done;

    pthread_mutex_lock(&candidate->mutex);
    is_done = candidate->leads &&
              atomic_load(&commit->kept) >= atomic_load(&commit->wanted);
    if (is_done)
        candidate->serves = false;
    pthread_mutex_unlock(&candidate->mutex);
    return is_done;
}

/* election_stop() waits for the election's thread, and its callbacks take the mutex:
 * it is released before. */
void leader_candidate_revert(struct leader_candidate *candidate)
{
    if (!candidate->election)
        return;
    pthread_mutex_lock(&candidate->mutex);
    candidate->is_reverting = true; /* not elected again meanwhile */
    if (candidate->serves)
        speak_freely(candidate);
    pthread_mutex_unlock(&candidate->mutex);
    election_stop(candidate->election); /* nobody calls it any more */
    candidate->election = NULL;
    candidate->is_reverting = false;
    server_poke(candidate->server);
}

bool leader_candidate_leads(struct leader_candidate *candidate)
{
    bool leads;

    pthread_mutex_lock(&candidate->mutex);
    leads = candidate->leads && !candidate->serves;
    pthread_mutex_unlock(&candidate->mutex);
    return leads;
}

struct output_commit *leader_candidate_output_commit(struct leader_candidate *candidate)
{
    return &candidate->commit;
}

const struct journal_sink *leader_candidate_sink(struct leader_candidate *candidate)
{
    return &candidate->sink;
}

int leader_candidate_start(struct leader_candidate *candidate, struct server *server,
                           const struct addresses *addresses, uint16_t port,
                           struct ctrun_error *err)
{
    const struct config *config = candidate->config;
    struct election_options options = {
        .config = &candidate->etcd,
        .ends_with_run = candidate->is_own,
        .run_id = config->run.run_id,
        .context = candidate,
        .on_leader = on_leader,
        .on_elected = on_elected,
        .on_renewed = on_renewed,
        .on_lost = on_lost,
        .on_written = on_written,
    };
    const uint64_t began_ms = ct_now_ms();
    const uint64_t deadline_ms = ct_deadline_ms(candidate->etcd.timeout_ms);
    int rc;

    candidate->server = server;
    server_record_fill(&options.self, config->run.host, addresses, port);
    for (;;) {
        const uint64_t left_ms = (uint64_t)ct_left_ms(deadline_ms);

        rc = election_start(&candidate->election, &options,
                            left_ms < NOTICE_EVERY_MS ? left_ms : NOTICE_EVERY_MS, err);
        if (candidate->is_own || rc != CTRUN_E_UNREACHABLE ||
            ct_left_ms(deadline_ms) < LAST_TRY_MS)
            return rc;
        messages_notice("waiting %llu s: %s",
                        (unsigned long long)((ct_now_ms() - began_ms) / 1000),
                        err->text);
    }
}

size_t leader_candidate_find_servers(struct leader_candidate *candidate,
                                     struct ct_addr *out, size_t max)
{
    size_t count;

    pthread_mutex_lock(&candidate->mutex);
    count = candidate->leader.count < max ? candidate->leader.count : max;
    for (size_t i = 0; i < count; i++)
        out[i] = candidate->leader.addrs[i];
    pthread_mutex_unlock(&candidate->mutex);
    return count;
}

void leader_candidate_stop(struct leader_candidate *candidate)
{
    election_stop(candidate->election);
    candidate->election = NULL;
}

void leader_candidate_destroy(struct leader_candidate *candidate)
{
    if (!candidate)
        return;
    ct_buf_deinit(&candidate->journal);
    etcd_config_wipe(&candidate->etcd);
    pthread_mutex_destroy(&candidate->mutex);
    free(candidate);
}
