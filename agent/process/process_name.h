/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a process, and the sender of a signal, for people on other nodes, who cannot look. */
#pragma once

#include <sys/types.h>

enum {
    PROCESS_NAME_MAX = 20,
    PROCESS_SENDER_MAX = 96,
};

/* "slurmstepd"; empty when it is gone already, or for the kernel (0). Returns dst. */
char *process_name(char dst[PROCESS_NAME_MAX], pid_t pid);
/* "SIGTERM from pid 812 (slurmstepd)", "SIGINT (Ctrl-C)"; sender: of signals.h. Returns dst. */
char *process_describe_sender(char dst[PROCESS_SENDER_MAX], int signal, pid_t sender);
