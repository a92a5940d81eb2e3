/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of election.h, and private to them:
 *
 *     election.c        life, the thread
 *     election_lead.c   winning, renewing, the journal, resigning
 *     election_watch.c  waiting until no server is elected
 *     election_state.c  states, waiting, who is elected
 *
 * Each needs only those below it. */
#pragma once

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "launcher/etcd/election.h"
#include "launcher/etcd/election_rules.h"
#include "launcher/etcd/etcd.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/seldom.h"
#include "worker_sdk/base/str.h"

enum {
    ELECTION_CALL_MS =
        5000, /* while not LEADING: long enough for an election inside etcd */
    ELECTION_PAUSE_MS = 200, /* etcd does not answer at all: next try */
    /* What etcd takes in one request is 1.5 MiB, in base64. */
    ELECTION_JOURNAL_MAX_BYTES = 1 << 20,
    ELECTION_HEAD_BYTES =
        2, /* in front of the journal: version; did its writer resign? */
    ELECTION_VERSION = 1,
};

enum election_state {
    ELECTION_LOOKING,
    ELECTION_WATCHING,
    ELECTION_LEADING,
};

struct election {
    struct election_options options;
    struct etcd *etcd;
    enum election_state state;
    char leader_key[JSON_ETCD_KEY_MAX];
    char journal_key[JSON_ETCD_KEY_MAX];
    char self[SERVER_RECORD_TEXT_MAX];
    uint64_t ttl_ms;
    int64_t lease;
    int64_t term;                /* LEADING: when our key was created, a revision */
    int64_t revision;            /* LEADING: of the store, as far as we know */
    int64_t leader_lease;        /* of the server elected last; 0: none was seen */
    int64_t seen_revision;       /* everything up to it is known; 0: nothing is */
    struct election_sight sight; /* of the server elected last */
    bool reports_watch;          /* emit an event for the next watch */
    bool is_silent;              /* the present watch has had no answer */
    bool is_unwell;              /* etcd does not answer, and this was logged */
    bool is_unwritten; /* the journal cannot be written, and this was logged */
    char leader[SERVER_RECORD_TEXT_MAX]; /* the leader reported last */
    uint64_t renewed_ms; /* when the last renewal that was confirmed was asked for */
    uint64_t renew_ms;   /* when the next one is due */
    uint64_t led_ms; /* we acknowledged no heartbeat that came later; 0: none at all */
    int64_t journal_lease;
    uint64_t journal_renew_ms;
    struct ct_seldom no_lease; /* for the journal */
    uint64_t written;          /* sequence */

    pthread_t thread;
    bool has_thread;
    atomic_bool is_stopping;
    /* Guards the fields below only: those above are the election thread's own once it runs. The
     * server's thread writes the fields below (election_write), the election's thread reads
     * them. */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint8_t *journal; /* owned; head and what was given; NULL: nothing to write yet */
    size_t journal_length;
    uint64_t sequence;
    bool is_over;    /* the run is over: delete the journal */
    bool is_hurried; /* a renewal is waited for */
};

/* election_state.c */

void election_set_state(struct election *election, enum election_state state,
                        const char *why);
bool election_is_stopping(struct election *election);
/* Until the time, or the end; with wants_writes also until there is something to write. */
void election_sleep(struct election *election, uint64_t until_ms, bool wants_writes);
/* Logs a failure of etcd, once until etcd works again, and pauses shortly. */
void election_log_down(struct election *election, const char *what,
                       const struct ctrun_error *why);
void election_log_up(struct election *election);
/* kv NULL: nobody is elected. */
void election_report_leader(struct election *election, const struct json_etcd_kv *kv);

/* election_lead.c */

/* Tries to be elected. 1: LEADING; 0: another one was quicker; or a code. */
int election_campaign(struct election *election, struct ctrun_error *err);
/* CTRUN_E_VERSION where the run's journal is one that we could not continue with. */
int election_check_journal(struct election *election, uint64_t deadline_ms,
                           struct ctrun_error *err);
/* While LEADING. */
void election_lead(struct election *election);
/* After the thread has ended. */
void election_resign(struct election *election);

/* election_watch.c */

/* A server was elected and is not any more; a watch from then on tells of its last renewal. */
bool election_has_missed_end(const struct election *election);
/* While WATCHING. */
void election_watch(struct election *election);
