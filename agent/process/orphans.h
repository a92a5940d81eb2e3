/* SPDX-License-Identifier: Apache-2.0 */
/* Orphans: processes that workers left behind. They are named before they are killed. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum {
    ORPHANS_NAMED_MAX = 16,   /* the others are only counted */
    ORPHANS_COUNTED_MAX = 64, /* what forks itself anew all the time has no number */
    ORPHANS_TEXT_MAX = 640,
    ORPHANS_PASS_MAX = 512 /* known at a time; the rest is found in the next pass */
};

/* Who they are; a zeroed one is empty. */
struct orphans {
    pid_t pids[ORPHANS_COUNTED_MAX];
    int count;
    char text[ORPHANS_TEXT_MAX];
};

/* A live process that is about to be killed; again and again is once. */
void orphans_note(struct orphans *orphans, pid_t pid);

/* "pid 4242 (sleep), pid 4243 (tee) and 3 more"; empty when there was none. Borrowed. */
const char *orphans_text(struct orphans *orphans);
/* The event that they were killed, in the round of that generation; text: orphans_text(). */
void orphans_emit(const struct orphans *orphans, uint64_t generation, const char *text);

/* ---- Of one dead worker, while the others continue --------------------------------------------
 *
 * The processes of its session, and what descends from those. A process that has left the session and whose
 * parents are all dead cannot be distinguished from another worker's: it lives until the round ends. */

/* Zeroed but for session, the pid of the worker, which names the session for as long as anybody is
 * in it; the worker itself is reaped. */
struct orphans_pass {
    pid_t session;
    int count;
    pid_t pids[ORPHANS_PASS_MAX]; /* killed, and alive in the last pass */
};

/* One pass: sends SIGKILL to all of them; `named` (may be NULL) gets who they are. Returns how many
 * were alive: look again until it is 0. */
int orphans_kill(struct orphans_pass *pass, struct orphans *named);
