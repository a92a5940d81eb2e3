/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that workers left behind, named before they are killed. A zeroed one is empty. */
#ifndef AGENT_PROCESS_LEFTOVERS_H
#define AGENT_PROCESS_LEFTOVERS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    LEFTOVERS_NAMED_MAX = 16,   /* the others are only counted */
    LEFTOVERS_COUNTED_MAX = 64, /* what forks itself anew all the time has no number */
    LEFTOVERS_TEXT_MAX = 640
};

struct leftovers {
    pid_t pids[LEFTOVERS_COUNTED_MAX];
    int count;
    char text[LEFTOVERS_TEXT_MAX];
};

/* A live process that is about to be killed; again and again is once. */
void leftovers_note(struct leftovers *leftovers, pid_t pid);

/* "pid 4242 (sleep), pid 4243 (tee) and 3 more"; empty when there was none. Borrowed. */
const char *leftovers_text(struct leftovers *leftovers);
/* The event that they were killed, in the round of that generation; text: leftovers_text(). */
void leftovers_emit(const struct leftovers *leftovers, uint64_t generation,
                    const char *text);

#endif
