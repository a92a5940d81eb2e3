/* SPDX-License-Identifier: Apache-2.0 */
/* A program that cannot work, started again and again: its fourth failure in the same way right
 * after the start ends the run, whatever restarts are left. Up to three restarts, the habit of most
 * launches, are so always used up. Pure. */
#ifndef RENDEZVOUS_CRASH_LOOP_H
#define RENDEZVOUS_CRASH_LOOP_H

#include "worker_sdk/wire/message.h"

enum {
    CRASH_LOOP_FAILURES = 4 /* equal ones in a row that end a run */
};

struct crash_loop {
    uint8_t
        times; /* that the last root cause came in a row, up to CRASH_LOOP_FAILURES */
    uint8_t cause; /* of the last root cause; CT_CAUSE_NONE: it was none of this kind */
    int32_t code;
    int64_t step;
    uint64_t line; /* hash of its last words */
};

/* Takes the root cause of a round. True when it is early (--min-uptime), those of the rounds before
 * were, CRASH_LOOP_FAILURES in all, and they are alike: the same cause, code, step and last line of
 * text, in which numbers do not count (times, pids, addresses). What comes from outside or from another failure is never
 * alike: SIGKILL and SIGTERM, lost nodes and peers, a rank that is stuck. */
bool crash_loop_take(struct crash_loop *loop, const struct ct_failure *root);
/* True for a program that is not there, or is none: no restart will help. */
bool crash_loop_is_hopeless(const struct ct_failure *root);

#endif
