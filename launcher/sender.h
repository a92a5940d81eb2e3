/* SPDX-License-Identifier: Apache-2.0 */
/* Who sent a signal, in a sentence. */
#ifndef LAUNCHER_SENDER_H
#define LAUNCHER_SENDER_H

#include <sys/types.h>

enum {
    SENDER_TEXT_MAX = 256
};

/* "SIGTERM from pid 812 (slurmstepd): stopping". sender 0: the kernel (Ctrl-C on a terminal).
 * `interrupts`: how many Ctrl-Cs there were, this one included. */
void sender_describe(char text[SENDER_TEXT_MAX], int signal, pid_t sender,
                     int interrupts);
/* "SIGUSR1 from pid 77 (bash): passed on to the workers". */
void sender_describe_passed(char text[SENDER_TEXT_MAX], int signal, pid_t sender);

#endif
