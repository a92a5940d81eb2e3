/* SPDX-License-Identifier: Apache-2.0 */
/* Who sent a signal, in a sentence; and which signals are handled at all. */
#pragma once

#include <sys/types.h>

enum {
    SIGNAL_SENDER_TEXT_MAX = 256
};

/* "SIGTERM from pid 812 (slurmstepd): stopping". sender: of agent/loop/signals.h.
 * `interrupts`: how many Ctrl-Cs there were, this one included. */
void signal_sender_describe(char text[SIGNAL_SENDER_TEXT_MAX], int signal, pid_t sender,
                            int interrupts);
/* "SIGUSR1 from pid 77 (bash): passed on to the workers". */
void signal_sender_describe_passed(char text[SIGNAL_SENDER_TEXT_MAX], int signal,
                                   pid_t sender);

/* A script's `ctrun ... &` begins with SIGINT and SIGQUIT ignored: a signal of --signals-to-handle
 * is handled nevertheless, as torchrun does. SIGHUP, which nohup ignores, stays ignored. */
void signal_sender_heed(int signal);
