/* SPDX-License-Identifier: Apache-2.0 */
/* How a node's workers are stopped. Pure: the input is a count of live processes and the time;
 * the output is actions and the time of the next look.
 *
 *     IDLE ──begin──> ASKED ──grace over──> KILLING ──10 s──> UNKILLABLE
 *                       └──── nobody left ─────┴────────────> DONE
 *
 * Workers get a signal, perhaps a while after the beginning, and then have the grace time; so
 * have the processes that they started in their session as long as a worker runs, and
 * AGENT_HELPER_MS after that. Processes that dead workers left behind (orphans, daemons) have
 * AGENT_ORPHAN_MS to end by themselves and are then killed. DONE means that no process at all is
 * left below us. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum policy_phase {
    POLICY_IDLE,
    POLICY_ASKED,
    POLICY_KILLING,
    POLICY_DONE,
    POLICY_UNKILLABLE,
};

enum policy_action {
    POLICY_SIGNAL = 1u << 0, /* to the process group of each running worker */
    POLICY_SIGNAL_REST =
        1u << 1, /* to the other groups of their sessions (job control) */
    /* SIGKILL to each process outside the sessions of asked workers */
    POLICY_KILL_ORPHANS = 1u << 2,
    POLICY_KILL_ALL = 1u << 3, /* SIGKILL to everything */
    /* SIGKILL to each process in an asked worker's session that does not save in its place */
    POLICY_KILL_HELPERS = 1u << 4,
    /* as POLICY_SIGNAL, to the workers that were spared then */
    POLICY_SIGNAL_SPARED = 1u << 5,
};

struct policy_census {
    int workers; /* running workers; always known */
    int asked;   /* workers that we stop, and others in their sessions */
    int orphans; /* every other process below us */
};
/* asked and orphans both 0 must be proven; other counts are only used when
 * policy_wants_census(). */

struct policy {
    enum policy_phase phase;
    int signal;        /* 0: no worker to ask, only orphans */
    bool is_signalled; /* the process groups got the signal */
    /* workers are asked no earlier: they may end by themselves */
    uint64_t ask_ms;
    /* the spared workers get the signal so long before the end of the grace; 0: none are left */
    uint64_t spared_ms;
    bool is_rest_signalled; /* the rest of the sessions got the signal */
    uint64_t rest_ms;
    uint64_t orphan_deadline_ms;
    uint64_t helper_deadline_ms; /* 0: a worker runs */
    uint64_t grace_deadline_ms;
    uint64_t kill_deadline_ms;
};

/* signal: which one asks the workers; grace_ms 0 kills at once. A second call does nothing. */
void policy_begin(struct policy *policy, int signal, uint64_t grace_ms,
                  uint64_t now_ms);
/* Asks the workers delay_ms later; they still have the whole grace time. */
void policy_postpone(struct policy *policy, uint64_t delay_ms);
/* Some workers end by themselves: the caller spares them at POLICY_SIGNAL, and signals them at
 * POLICY_SIGNAL_SPARED, `before_ms` before the end of the grace; UINT64_MAX: at the next step. */
void policy_spare(struct policy *policy, uint64_t before_ms);
/* Asks at once workers that were to be asked later, shortens the grace time to at most grace_ms
 * from now, and sends `signal` to workers that got a gentler one before. SIGTERM is not sent
 * twice for two reasons to stop. */
void policy_hurry(struct policy *policy, int signal, uint64_t grace_ms,
                  uint64_t now_ms);
/* Extends the grace time to at least grace_ms from now: a stop of the whole job leaves more time
 * than a new round. */
void policy_extend(struct policy *policy, uint64_t grace_ms, uint64_t now_ms);
/* True when the next step depends on which processes are left, not only on whether any is:
 * counting costs a walk through /proc, which a quick stop never needs. */
bool policy_wants_census(const struct policy *policy, uint64_t now_ms);
/* Returns POLICY_* actions; look again at *wake_ms, or earlier when a child has ended. */
unsigned policy_next(struct policy *policy, const struct policy_census *census,
                     uint64_t now_ms, uint64_t *wake_ms);
