/* SPDX-License-Identifier: Apache-2.0 */
/* Detects a program that fails in the same way again and again: two equal failures in a row without
 * progress end the run, whatever restarts are left. A small --max-restarts is used up all the same:
 * this takes little time, and scripts made for torchrun expect it. Pure.
 *
 * Equal: the same cause, code and step, and the same exception or else last line of output, in
 * which numbers do not count (times, pids, addresses). Exit code 1 without any output is equal to
 * nothing. Without progress: right after the start (--min-uptime), or at a step that the program
 * has reported. A cause outside the program never counts: SIGTERM, a lost node or peer, a stuck
 * rank. */
#pragma once

#include "worker_sdk/wire/message.h"

enum {
    CRASH_LOOP_FEW_RESTARTS = 3
};

struct crash_loop {
    uint8_t cause; /* of the last root cause; CT_CAUSE_NONE: it does not count here */
    int32_t code;
    int64_t step;
    uint64_t line; /* hash of its exception or last line; 0: none */
};

/* Takes the root cause of a round. True if this one is equal to that of the round before. */
bool crash_loop_take(struct crash_loop *loop, const struct ct_failure *root);
/* True if the program does not exist or cannot be executed: no restart will help. */
bool crash_loop_is_hopeless(const struct ct_failure *root);
