/* SPDX-License-Identifier: Apache-2.0 */
/* caller READY KIND shm|tcp: makes a call of that kind (its number in calls.h) in each step, for
 * ever. Each rank makes the file READY.RANK after some steps. It prints the error of a call that
 * fails. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/calls.h"

enum {
    SOURCE = 1,
    READY_STEPS = 20,
    PAUSE_MS = 1 /* leaves processor time to the other ranks */
};

int main(int argc, char **argv)
{
    struct ctrun_group_options options = CTRUN_GROUP_OPTIONS_INIT;
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_error err;
    char path[512];
    FILE *ready;

    if (argc != 4 || ctrun_open(&session, NULL, &err) < 0)
        return 2;
    options.shm = strcmp(argv[3], "shm") == 0;
    if (ctrun_group_open(&world, session, &options, &err) < 0)
        return 2;
    for (uint64_t step = 0;; step++) {
        if (call_make(world, (enum call_kind)strtol(argv[2], NULL, 10), SOURCE, &err) <
            0) {
            printf("rank %d: %s\n", ctrun_rank(session), err.text);
            return ctrun_fail_worker(&err);
        }
        ctrun_step(session, step);
        (void)poll(NULL, 0, PAUSE_MS);
        if (step != READY_STEPS)
            continue;
        (void)snprintf(path, sizeof path, "%s.%d", argv[1], ctrun_rank(session));
        if (!(ready = fopen(path, "w")) || fclose(ready))
            return 2;
    }
}
