/* SPDX-License-Identifier: Apache-2.0 */
/* How a node's workers are stopped. Pure: a count of who lives and the time go in, actions and
 * the time of the next look come out.
 *
 *     IDLE ──begin──> ASKED ──grace over──> KILLING ──10 s──> UNKILLABLE
 *                       └──── nobody left ─────┴────────────> DONE
 *
 * Workers are asked with a signal, perhaps a while after the beginning, and then have the grace;
 * what they started in their session has it too for as long as one of them runs, and
 * AGENT_HELPER_MS after that. What dead workers left behind (orphans, daemons) has a moment to end by
 * itself and is then killed. DONE means that no process at all is left below us. */
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
    POLICY_KILL_ORPHANS =
        1u << 2,               /* SIGKILL to all that is in no asked worker's session */
    POLICY_KILL_ALL = 1u << 3, /* SIGKILL to everything */
    POLICY_KILL_HELPERS =
        1u << 4, /* SIGKILL to all in an asked worker's session that does not
                                      save in its place */
};

struct policy_census {
    int workers; /* that run; always known */
    int asked;   /* workers that we stop, and others in their sessions */
    int orphans; /* every other process below us */
};
/* Both 0 must be proven; other counts are only looked at when policy_wants_census(). */

struct policy {
    enum policy_phase phase;
    int signal;             /* 0: there is nobody to ask, only orphans */
    bool is_signalled;      /* the groups were */
    uint64_t ask_ms;        /* not before: they may end by themselves */
    bool is_rest_signalled; /* the sessions were */
    uint64_t rest_ms;
    uint64_t orphan_deadline_ms;
    uint64_t helper_deadline_ms; /* 0: a worker runs */
    uint64_t grace_deadline_ms;
    uint64_t kill_deadline_ms;
};

/* signal: what to ask with; grace_ms 0 kills at once. A begun stop is not begun again. */
void policy_begin(struct policy *policy, int signal, uint64_t grace_ms,
                  uint64_t now_ms);
/* The workers are asked delay_ms later than that, and have the whole grace then. */
void policy_postpone(struct policy *policy, uint64_t delay_ms);
/* Asks at once those that were to be asked later, shortens the grace to at most grace_ms from now, and
 * asks with `signal` those who were asked more gently, with another one than SIGTERM: two reasons to
 * stop are one SIGTERM. */
void policy_hurry(struct policy *policy, int signal, uint64_t grace_ms,
                  uint64_t now_ms);
/* At least grace_ms from now: who stops the whole job leaves more time than a new round does. */
void policy_extend(struct policy *policy, uint64_t grace_ms, uint64_t now_ms);
/* True when the next step depends on who is left, not only on whether anybody is: counting
 * costs a walk through /proc, which a quick stop never needs. */
bool policy_wants_census(const struct policy *policy, uint64_t now_ms);
/* Returns POLICY_* actions; look again at *wake_ms, or earlier when a child has ended. */
unsigned policy_next(struct policy *policy, const struct policy_census *census,
                     uint64_t now_ms, uint64_t *wake_ms);
