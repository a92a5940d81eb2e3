/* SPDX-License-Identifier: Apache-2.0 */
/* A child of a --hosts process with pipes of its own: ssh, or this host's ctrun. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "worker_sdk/base/error.h"

struct ssh_spawn {
    const char *path; /* looked up in PATH when it has no slash */
    char *const *argv;
    char *const *env;
    bool has_input;   /* false: /dev/null */
    bool has_channel; /* descriptor 3: a SOCK_SEQPACKET socket */
    /* Ours, close-on-exec; -1 when not asked for. The caller closes them. */
    int input;
    int out;
    int err;
    int channel;
};

/* Starts the child in a process group of its own, with an empty signal mask and the default
 * action for SIGPIPE and SIGXFSZ; other ignored signals stay ignored. Its pid, or a negative
 * errno; then no descriptor is left open. */
pid_t ssh_spawn(struct ssh_spawn *spawn, struct ctrun_error *err);
