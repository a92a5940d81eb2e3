/* SPDX-License-Identifier: Apache-2.0 */
/* Which node of a run serves its rendezvous, decided in etcd; and the run's journal, kept there.
 *
 *     LOOKING ──somebody's key──> WATCHING ──key gone, watch compacted, time──┐
 *      ▲ │                                                                    │
 *      │ └─no key: lease, key created──> LEADING ──lease or key is gone──┐    │
 *      └────────────────────────────────────────────────────────────────┴────┘
 *
 * The key PREFIX/RUN_ID/host holds the winner's addresses and lives as long as its lease. While
 * LEADING the lease is renewed six times per TTL. For half a TTL after the last renewal that etcd
 * confirmed (counted from when it was asked) the winner may send to the agents; then it sends
 * nothing until the next confirmed renewal, by its own clock. So a successor, which cannot win
 * before the whole TTL is over, knows until when its predecessor may have sent. In an etcd of the
 * run's own each renewal also writes the key: a node that watches the key knows that time without
 * the time that etcd took to end the lease (a new leader of etcd restarts all leases).
 *
 * PREFIX/RUN_ID/journal is what the next server must know. It is written in transactions that
 * fail once the writer's key is gone: a server that has lost its lease writes nothing. It outlives
 * its server by ten minutes.
 *
 * A watch that is cut continues at the next member from the revision seen last; a watch whose
 * revision was compacted meanwhile goes back to LOOKING. A member that has lost its leader keeps
 * watches open and sends nothing: so no watch lasts longer than half a TTL.
 *
 * One thread, which makes all callbacks. */
#pragma once

#include "launcher/config/etcd_config.h"
#include "launcher/net/server_record.h"

struct election;

struct election_options {
    const struct etcd_config *config; /* kept */
    const char *run_id;               /* kept */
    struct server_record self;
    bool
        ends_with_run; /* this etcd is the run's own: it needs no clean-up at the end, and
                         * drops old revisions, so that each renewal may write the key */
    void *context;     /* kept */
    /* Who is elected now; count 0: nobody. */
    void (*on_leader)(void *context, const struct server_record *leader);
    /* This node is elected. The journal is as it was written last (length 0: a new run). The
     * predecessor's last renewal began at `served_ms` at the latest, by our clock: no heartbeat
     * that was sent later was acknowledged. We may send until `until_ms`. Terms grow with each
     * winner. */
    int (*on_elected)(void *context, uint64_t term, const void *journal, size_t length,
                      uint64_t served_ms, uint64_t until_ms, struct ctrun_error *err);
    /* A renewal that began at asked_ms has succeeded: this node was elected then and still is. */
    void (*on_renewed)(void *context, uint64_t asked_ms, uint64_t until_ms);
    void (*on_lost)(
        void *context); /* the lease is over, or the key gone: no longer elected */
    /* The journal of that number, or a later one, is safe. */
    void (*on_written)(void *context, uint64_t sequence);
};

/* Reaches etcd once within timeout_ms, so that what is wrong is known before anything starts,
 * then continues in a thread; *out is set before that makes callbacks. 0 or a code of etcd_do(). */
int election_start(struct election **out, const struct election_options *options,
                   uint64_t timeout_ms, struct ctrun_error *err);
/* Any thread: this is the journal from now on (copied). Numbers grow; only the last journal counts.
 * length 0: the run is over, and the journal is deleted. 0, -EFBIG, -ENOMEM. */
int election_write(struct election *election, uint64_t sequence, const void *journal,
                   size_t length);
/* Any thread: asks for an early renewal, because somebody waits for it. */
void election_hurry(struct election *election);
/* Any thread: see etcd_set_members(). */
void election_set_members(struct election *election, const struct etcd_config *config);
/* Resigns, so that another node can be elected at once, and ends the thread; no callback is
 * running or will come. NULL is fine. Waits four seconds at most for etcd. */
void election_stop(struct election *election);
