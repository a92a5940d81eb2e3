/* SPDX-License-Identifier: Apache-2.0 */
/* A program that cannot work, started again and again: two equal failures in a row without progress
 * end the run, whatever restarts are left. Where few were asked for, they are used up all the same:
 * that is soon over, and is what scripts made for torchrun count on. Pure.
 *
 * Equal: the same cause, code and step, and the same exception or else last line of output, in which
 * numbers do not count (times, pids, addresses). Exit code 1 without any words seen is equal to
 * nothing. Without progress: right after the start (--min-uptime), or at a step that the program has
 * told. What comes from outside or from another failure never counts: SIGTERM, lost nodes and peers,
 * a rank that is stuck. */
#pragma once

#include "worker_sdk/wire/message.h"

enum {
    CRASH_LOOP_FEW_RESTARTS = 3
};

struct crash_loop {
    uint8_t cause; /* of the last root cause; CT_CAUSE_NONE: it was none of this kind */
    int32_t code;
    int64_t step;
    uint64_t line; /* hash of its exception or last line; 0: none */
};

/* Takes the root cause of a round. True when it is equal to that of the round before. */
bool crash_loop_take(struct crash_loop *loop, const struct ct_failure *root);
/* True for a program that is not there, or is none: no restart will help. */
bool crash_loop_is_hopeless(const struct ct_failure *root);
