/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that a host of a --hosts run must know: the part of the list that it starts, itself
 * first, and the command line and environment of its own ctrun. A job is sent to ssh's standard
 * input, so that nothing must be quoted and no secret is visible in a process list.
 *
 * A job is zeroed or complete; ssh_job_deinit() accepts both. */
#pragma once

#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/error.h"

enum {
    SSH_HOSTS_MAX = 4096,
    SSH_JOB_MAX_BYTES = 8 << 20, /* the kernel's own limit of arguments is smaller */
    SSH_WORDS_MAX = 65536,       /* arguments, or names in the environment */
};

struct ssh_job {
    uint32_t total; /* hosts of the run */
    uint32_t first; /* place of names[0] in the run's list */
    uint32_t fanout;
    uint32_t reach_ms; /* --hosts-timeout */
    char *program;     /* path of ctrun; all strings are owned */
    char *ssh;         /* a command for sh; empty: ssh */
    char *cwd;
    char *run_id;
    char *token;
    char **names; /* lists end with NULL */
    char **argv;  /* of ctrun, as typed */
    char **env;   /* NAME=value; overrides the host's own */
};

/* Appends the job, as seen by the host at `first`, which gets `count` names. 0 or a negative
 * errno. */
int ssh_job_encode(struct ct_buf *out, const struct ssh_job *job, uint32_t first,
                   uint32_t count);
/* 0, -EBADMSG, -ENOMEM. */
int ssh_job_decode(struct ssh_job *out, const void *data, size_t length);
void ssh_job_deinit(struct ssh_job *job);
/* Number of hosts in this job's part of the list. */
uint32_t ssh_job_count(const struct ssh_job *job);
/* The name without "user@". */
const char *ssh_job_host(const struct ssh_job *job, uint32_t place);
