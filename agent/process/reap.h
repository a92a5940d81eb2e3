/* SPDX-License-Identifier: Apache-2.0 */
/* The processes below this one, and how to be sure that none is left.
 *
 * Guard and agent are child subreapers: a process that loses its parent, by a double fork or by
 * our kill, becomes our child. So "I have no child" proves "nothing of mine is alive", and
 * killing children again and again reaches everything, whatever it did to escape.
 *
 * All functions are async-signal-safe and allocate nothing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct reap_process {
    pid_t pid;
    pid_t parent;
    pid_t group;
    pid_t session;
    uint64_t started; /* in ticks after boot: two processes of one pid have two */
    char state;       /* state letter of /proc/PID/stat: 'D' cannot be killed for now */
};

/* Children that we did not start and leave alone: they existed before us (`work & exec ctrun
 * ...`). */
struct reap_keep {
    int count;
    pid_t pids[64];
};

typedef void reap_visit_fn(void *context, const struct reap_process *process);

/* Visits each living descendant (no zombies), mostly parents first; a process that is forked
 * meanwhile may be missed: scan again. keep (may be NULL) and its descendants are left out.
 * Returns the number of visits, or a negative errno. */
int reap_scan(const struct reap_keep *keep, reap_visit_fn *visit, void *context);
/* True when this process has no child at all, dead or alive: nothing below it is left. */
bool reap_is_childless(void);
/* Reads one process; false when it is gone (out is unchanged), or dead and not yet reaped (out
 * is filled). */
bool reap_look(pid_t pid, struct reap_process *out);
/* Sends SIGKILL unless it has ended, though another process may have its pid now. `process`: by reap_look() or of a visit. */
void reap_kill(const struct reap_process *process);
/* Notes the present children. */
void reap_note_children(struct reap_keep *keep);
/* Kills with SIGKILL and reaps until nothing but keep (may be NULL) is left, at most
 * timeout_ms. Returns the number of survivors; *survivor is one of them. Blocks. */
int reap_kill_all(const struct reap_keep *keep, uint64_t timeout_ms,
                  struct reap_process *survivor);
