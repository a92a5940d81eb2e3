/* SPDX-License-Identifier: Apache-2.0 */
/* The template of --warm: a Python process that has imported what all workers will import, and
 * is forked for each of them (template.py), so that a worker starts without an import.
 *
 *     STARTING ──ready──> READY ──died, or too slow a batch──> LOST ──template_revive()──> STARTING
 *         │                 │                                   │ too often
 *         │ obstacle, end,  │ another batch has failed          │
 *         └── time is over ─┴────────────> REFUSED <────────────┘
 *
 * READY: template_fork.h makes workers of it. LOST lasts for the rest of the round, REFUSED is
 * final: in both, workers are started by exec. A warning says why, unless the template died
 * between batches without a message. The template is a child of this process, is in the run's cgroup and dies with
 * this process. No stop waits for it: counts and kills of the processes below us leave it out
 * (template_keep()).
 *
 * Its socket (SOCK_SEQPACKET) carries:
 *
 *     R                    it is ready                                  template -> agent
 *     N why                it cannot be forked (any more), and ends
 *     number + 5 fds       a worker: its number in the batch; its argv and environment (a memfd: their
 *                          counts, then all of them, each with its 0), the start barrier, stdin, stdout, stderr
 *     E                    the end of a batch                           agent -> template
 *     IMPORT names         import these, too, as far as that works      agent -> template
 *     W number rc          that worker exists, or fork() gave rc        worker -> agent
 *     D status             all of the batch are children of the agent   template -> agent
 *
 * The kernel tells which process has sent a W. The barrier is a pipe: a worker that reads a byte
 * begins its program; a worker that reads the end of the pipe exits. So all workers of a batch
 * begin, or none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/loop/loop.h"
#include "agent/process/bind.h"
#include "agent/process/reap.h"

/* What is imported, and in which environment. */
struct template_plan {
    const char *python;  /* looked up in env's PATH */
    const char *modules; /* "torch,transformers" */
    /* its folder is searched for modules, too; empty: the current folder is */
    const char *script;
    char *const *env;  /* the part of the environment that all workers share */
    struct bind bind;  /* limits, and CPUs if all workers have the same */
    int workers;       /* of this node */
    bool learns;       /* template_learn() may be called */
    uint64_t limit_ms; /* for the imports */
};

struct template;

/* `plan` is kept. on_settled: called when it leaves STARTING. NULL: out of memory. */
struct template *template_create(struct loop *loop, const struct template_plan *plan,
                                 void (*on_settled)(void *context), void *context);
/* Kills it; blocks until it is gone, or for TEMPLATE_END_MS. NULL is fine. */
void template_destroy(struct template *template);
/* Starts a LOST template again, unless killed processes of the old one have not ended yet. */
void template_revive(struct template *template);
bool template_is_starting(const struct template *template); /* NULL is fine: false */
/* Its socket while it is READY; else, and for NULL, -1. */
int template_socket(const struct template *template);
/* A child has ended: true when it was the template. NULL is fine. */
bool template_on_end(struct template *template, pid_t pid, int status);
/* A batch has failed with `rc` (template_fork.h). The machine may have been too busy, so the
 * next template may succeed; but not if fork() fails there, or if it has sent an invalid answer. */
void template_fail_batch(struct template *template, int rc, const char *why);
/* Modules that workers had imported at their first step, "numpy,numpy.random": it imports them now, once in
 * a run, without an answer. If no worker can be forked after that, it ends. Does nothing while it is not
 * READY. NULL is fine. */
void template_learn(struct template *template, const char *names);
/* The processes to leave alone below us: the template, or none. */
void template_keep(const struct template *template, struct reap_keep *keep);
