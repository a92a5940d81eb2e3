/* SPDX-License-Identifier: Apache-2.0 */
/* Orphans: processes that workers left behind. Their names are noted before they are killed. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum {
    ORPHANS_NAMED_MAX = 16, /* the others are only counted */
    /* a program that forks itself again and again has no fixed number */
    ORPHANS_COUNTED_MAX = 64,
    ORPHANS_TEXT_MAX = 640,
    ORPHANS_PASS_MAX = 512 /* known at a time; the next pass finds the rest */
};

/* Names of orphans; a zeroed one is empty. */
struct orphans {
    pid_t pids[ORPHANS_COUNTED_MAX];
    int count;
    char text[ORPHANS_TEXT_MAX];
};

/* Notes a live process that is about to be killed; noting it again changes nothing. */
void orphans_note(struct orphans *orphans, pid_t pid);

/* "pid 4242 (sleep), pid 4243 (tee) and 3 more"; empty when there was none. Borrowed. */
const char *orphans_text(struct orphans *orphans);
/* Emits the event that they were killed, in the round of that generation; text: orphans_text(). */
void orphans_emit(const struct orphans *orphans, uint64_t generation, const char *text);

/* ---- Orphans of one dead worker, while the others continue ------------------------------
 *
 * The processes of its session, and their descendants. A process that has left the session and
 * whose parents are all dead cannot be distinguished from another worker's: it lives until the
 * round ends. */

/* Zeroed except for session, the pid of the worker, which names the session as long as a process
 * is in it; the worker itself is reaped. */
struct orphans_pass {
    pid_t session;
    int count;
    pid_t pids[ORPHANS_PASS_MAX];       /* killed, and alive in the last pass */
    uint64_t started[ORPHANS_PASS_MAX]; /* as in struct reap_process */
};

/* One pass: sends SIGKILL to all of them; `named` (may be NULL) gets their names. Returns how
 * many were alive: call it again until it returns 0. */
int orphans_kill(struct orphans_pass *pass, struct orphans *named);
