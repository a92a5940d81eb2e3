/* SPDX-License-Identifier: Apache-2.0 */
/* One signal to a run, however many of its nodes get it: each worker gets it once.
 *
 * srun sends USR1 to every task, a user to one of them. Each agent counts the signals that it gets itself,
 * delivers them, and sends its count to the others. They deliver only what is above the highest count that they
 * have made or received: the second USR1 here is the second one there, whichever comes first.
 * Counts start again once a signal did not come for SIGNAL_ONCE_QUIET_MS: until then the same
 * signal to one node and, later, to another node counts as one. Pure. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    SIGNAL_ONCE_QUIET_MS =
        5000 /* a scheduler on a busy cluster reaches all nodes within this time */
};

struct signal_once {
    struct {
        uint64_t last_ms; /* 0: never */
        uint32_t own;
        uint32_t delivered;
    } of[NSIG];
};

/* This agent got `signal` (1 to NSIG - 1). Returns the count for the others; *is_new: deliver. */
uint32_t signal_once_get(struct signal_once *once, int signal, uint64_t now_ms,
                         bool *is_new);
/* Another node got the signal, for the `count`-th time. True: deliver it here, too. */
bool signal_once_receive(struct signal_once *once, int signal, uint32_t count,
                         uint64_t now_ms);
