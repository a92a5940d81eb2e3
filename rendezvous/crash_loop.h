/* SPDX-License-Identifier: Apache-2.0 */
/* A program that cannot work, started again and again: its second failure in the same way right
 * after the start ends the run, whatever restarts are left. Where few were asked for, they are used
 * up all the same: that is soon over, and is what scripts made for torchrun count on. Pure. */
#ifndef RENDEZVOUS_CRASH_LOOP_H
#define RENDEZVOUS_CRASH_LOOP_H

#include "worker_sdk/wire/message.h"

enum {
    CRASH_LOOP_FEW_RESTARTS = 3
};

struct crash_loop {
    uint8_t cause; /* of the last root cause; CT_CAUSE_NONE: it was none of this kind */
    int32_t code;
    int64_t step;
    uint64_t line; /* hash of its last words */
};

/* Takes the root cause of a round. True when it is early (--min-uptime), that of the round before
 * was, and both are alike: the same cause, code, step and last line of text, in which numbers do
 * not count (times, pids, addresses). What comes from outside or from another failure is never
 * alike: SIGKILL and SIGTERM, lost nodes and peers, a rank that is stuck. */
bool crash_loop_take(struct crash_loop *loop, const struct ct_failure *root);
/* True for a program that is not there, or is none: no restart will help. */
bool crash_loop_is_hopeless(const struct ct_failure *root);

#endif
