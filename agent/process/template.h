/* SPDX-License-Identifier: Apache-2.0 */
/* The template of --warm: a Python process that has imported what all workers will import, and is forked
 * for each of them (template.py), so that a worker starts without an import.
 *
 *     STARTING ──ready──> READY ──died, or too slow a batch──> LOST ──template_revive()──> STARTING
 *         │                 │                                   │ too often
 *         │ obstacle, end,  │ another batch has failed          │
 *         └── time is over ─┴────────────> REFUSED <────────────┘
 *
 * READY: template_fork.h makes workers of it. LOST is for the rest of the round, REFUSED for good: workers are started
 * by exec. A warning says why, unless it has died between batches. It is a child of this process and in the run's cgroup, dies with this process, and
 * is one that nobody has to wait for: who counts or kills what is below us leaves it out
 * (template_keep()).
 *
 * Its socket (SOCK_SEQPACKET) carries:
 *
 *     R                    it is ready                                  template -> agent
 *     N why                it cannot be forked, and ends
 *     number + 5 fds       a worker: its number in the batch; its argv and environment (a memfd: their
 *                          counts, then all of them, each with its 0), the start barrier, stdin, stdout, stderr
 *     E                    the end of a batch                           agent -> template
 *     W number rc          that worker exists, or fork() gave rc        worker -> agent
 *     D status             all of the batch are children of the agent   template -> agent
 *
 * Who a W comes from the kernel says. The barrier is a pipe: with a byte a worker begins its program, at its
 * end it ends. So all of a batch begin, or none. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/loop/loop.h"
#include "agent/process/bind.h"
#include "agent/process/reap.h"

/* What is imported, and with what. */
struct template_plan {
    const char *python;  /* looked up in env's PATH */
    const char *modules; /* "torch,transformers" */
    const char *script;  /* whose folder is searched, too; empty: this one is */
    char *const *env;    /* what all workers have in theirs */
    struct bind bind;    /* limits, and CPUs if all workers have the same */
    int workers;         /* of this node */
    uint64_t limit_ms;   /* for the imports */
};

struct template;

/* `plan` is kept. on_settled: it is STARTING no more. NULL: out of memory. */
struct template *template_create(struct loop *loop, const struct template_plan *plan,
                                 void (*on_settled)(void *context), void *context);
/* Kills it; blocks until it is gone. NULL is fine. */
void template_destroy(struct template *template);
/* A LOST one is started again, unless what was killed of the old one has not ended yet. */
void template_revive(struct template *template);
bool template_is_starting(const struct template *template); /* NULL is fine: false */
/* Its socket while it is READY; else, and for NULL, -1. */
int template_socket(const struct template *template);
/* A child has ended: true when it was this one. NULL is fine. */
bool template_on_end(struct template *template, pid_t pid, int status);
/* A batch has failed with `rc` (template_fork.h). The machine may have been too busy, and the next template may do
 * better; but not where it cannot fork, or has sent what is no answer. */
void template_fail_batch(struct template *template, int rc, const char *why);
/* Those to be left alone below us: it, or nobody. */
void template_keep(const struct template *template, struct reap_keep *keep);
