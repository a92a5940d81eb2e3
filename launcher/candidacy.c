/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/candidacy.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "launcher/election.h"
#include "launcher/messages.h"
#include "rendezvous/gate.h"
#include "rendezvous/journal.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    SAY_EVERY_MS = 10000,
    LAST_TRY_MS = 500,           /* with less time there is no use in one */
    JOURNAL_MAX_BYTES = 1 << 20, /* what election_write() takes */
};

struct candidacy {
    const struct config *config;
    struct election *election;
    struct server *server;
    struct gate gate;
    struct journal_sink sink;
    /* The server's thread's, and the election's while that one turns everybody away. */
    struct ct_buf journal; /* this run's batches since the last whole one, framed */
    uint64_t sequence;

    pthread_mutex_t mutex; /* host */
    struct etcd_host host;
};

/* ---- The journal --------------------------------------------------------------------- */

static int append_batch(struct ct_buf *journal, const uint8_t *batch, size_t length)
{
    uint8_t head[JOURNAL_FRAME_BYTES];
    int rc;

    journal_frame_encode(head, batch, length);
    rc = ct_buf_append(journal, head, sizeof head);
    return rc < 0 ? rc : ct_buf_append(journal, batch, length);
}

/* On the server's thread. What the step has to say waits at the gate until etcd has it. */
static int store(void *context, const char *run_id, unsigned flags,
                 const uint8_t *batch, size_t length)
{
    struct candidacy *candidacy = context;
    struct ct_buf *journal = &candidacy->journal;
    int rc = 0;

    (void)run_id; /* there is one only */
    if (flags & (JOURNAL_WHOLE | JOURNAL_END))
        ct_buf_consume(journal, ct_buf_length(journal));
    if (!(flags & JOURNAL_END))
        rc = append_batch(journal, batch, length);
    atomic_store(&candidacy->gate.wanted, ++candidacy->sequence);
    if (rc == 0)
        rc = election_write(candidacy->election, candidacy->sequence,
                            ct_buf_data(journal), ct_buf_length(journal));
    if (rc < 0)
        ct_err("etcd: the journal of run %s does not fit: %s; --rdzv-backend=etcd is "
               "for up to some 2000 nodes",
               run_id, strerror(-rc));
    return rc;
}

/* ---- What the election says, on its thread ------------------------------------------- */

static void on_host(void *context, const struct etcd_host *host)
{
    struct candidacy *candidacy = context;

    pthread_mutex_lock(&candidacy->mutex);
    candidacy->host = *host;
    pthread_mutex_unlock(&candidacy->mutex);
}

/* What the predecessor has written becomes ours: under our lease, and no longer the word of one
 * that has gone in peace. */
static int on_elected(void *context, const void *journal, size_t length,
                      uint64_t silence_ms, uint64_t until_ms)
{
    struct candidacy *candidacy = context;
    struct ctrun_error err;
    int rc;

    ct_buf_consume(&candidacy->journal, ct_buf_length(&candidacy->journal));
    if (length > 0 && (rc = ct_buf_append(&candidacy->journal, journal, length)) < 0)
        return rc;
    atomic_store(&candidacy->gate.wanted, ++candidacy->sequence);
    if (length > 0)
        (void)election_write(candidacy->election, candidacy->sequence, journal, length);
    atomic_store(&candidacy->gate.kept, length > 0 ? 0 : candidacy->sequence);
    atomic_store(&candidacy->gate.until_ms, until_ms);
    if ((rc = server_lead(candidacy->server, journal, length, silence_ms, &err)) < 0)
        ct_err("etcd: cannot take the run over: %s", err.text);
    return rc;
}

static void on_renewed(void *context, uint64_t until_ms)
{
    struct candidacy *candidacy = context;

    atomic_store(&candidacy->gate.until_ms, until_ms);
    server_poke(candidacy->server);
}

static void on_deposed(void *context)
{
    struct candidacy *candidacy = context;

    atomic_store(&candidacy->gate.until_ms, 0);
    server_yield(candidacy->server);
}

static void on_written(void *context, uint64_t sequence)
{
    struct candidacy *candidacy = context;

    atomic_store(&candidacy->gate.kept, sequence);
    server_poke(candidacy->server);
}

/* ---- Life ---------------------------------------------------------------------------- */

int candidacy_create(struct candidacy **out, const struct config *config,
                     struct ctrun_error *err)
{
    struct candidacy *candidacy = ct_zalloc(sizeof *candidacy);

    if (!candidacy)
        return ct_fail(err, -ENOMEM, "etcd: out of memory");
    candidacy->config = config;
    candidacy->sink = (struct journal_sink){.context = candidacy, .store = store};
    gate_init(&candidacy->gate);
    ct_buf_init(&candidacy->journal, JOURNAL_MAX_BYTES);
    pthread_mutex_init(&candidacy->mutex, NULL);
    *out = candidacy;
    return 0;
}

struct gate *candidacy_gate(struct candidacy *candidacy)
{
    return &candidacy->gate;
}

const struct journal_sink *candidacy_sink(struct candidacy *candidacy)
{
    return &candidacy->sink;
}

int candidacy_start(struct candidacy *candidacy, struct server *server,
                    const struct addresses *addresses, uint16_t port,
                    struct ctrun_error *err)
{
    const struct config *config = candidacy->config;
    struct election_options options = {
        .config = &config->etcd,
        .run_id = config->run_id,
        .context = candidacy,
        .on_host = on_host,
        .on_elected = on_elected,
        .on_renewed = on_renewed,
        .on_deposed = on_deposed,
        .on_written = on_written,
    };
    const uint64_t began_ms = ct_now_ms();
    const uint64_t deadline_ms = ct_deadline_ms(config->etcd.timeout_ms);
    int rc;

    candidacy->server = server;
    etcd_host_fill(&options.self, config->host, addresses, port);
    for (;;) {
        const uint64_t left_ms = (uint64_t)ct_left_ms(deadline_ms);

        rc = election_start(&candidacy->election, &options,
                            left_ms < SAY_EVERY_MS ? left_ms : SAY_EVERY_MS, err);
        if (rc != CTRUN_E_UNREACHABLE || ct_left_ms(deadline_ms) < LAST_TRY_MS)
            return rc;
        messages_say("waiting %llu s: %s",
                     (unsigned long long)((ct_now_ms() - began_ms) / 1000), err->text);
    }
}

size_t candidacy_find_servers(struct candidacy *candidacy, struct ct_addr *out,
                              size_t max)
{
    size_t count;

    pthread_mutex_lock(&candidacy->mutex);
    count = candidacy->host.count < max ? candidacy->host.count : max;
    for (size_t i = 0; i < count; i++)
        out[i] = candidacy->host.addrs[i];
    pthread_mutex_unlock(&candidacy->mutex);
    return count;
}

void candidacy_stop(struct candidacy *candidacy)
{
    election_stop(candidacy->election);
    candidacy->election = NULL;
}

void candidacy_destroy(struct candidacy *candidacy)
{
    if (!candidacy)
        return;
    ct_buf_deinit(&candidacy->journal);
    pthread_mutex_destroy(&candidacy->mutex);
    free(candidacy);
}
