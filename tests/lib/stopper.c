/* SPDX-License-Identifier: Apache-2.0 */
/* stopper READY [RANK MS]: the loop at the top of ctrun.h: one collective a step until the run is
 * to end. RANK begins each step MS later. Each rank makes the file READY.RANK after some steps, and
 * prints after how many it stopped. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker_sdk/include/ctrun.h"

int main(int argc, char **argv)
{
    struct ctrun_session *session;
    struct ctrun_group *world;
    struct ctrun_error err;
    uint64_t step;
    char path[512];
    FILE *ready;
    int late_ms = 0;

    if ((argc != 2 && argc != 4) || ctrun_open(&session, NULL, &err) < 0 ||
        ctrun_group_open(&world, session, NULL, &err) < 0)
        return 2;
    if (argc == 4 && ctrun_rank(session) == strtol(argv[2], NULL, 10))
        late_ms = (int)strtol(argv[3], NULL, 10);
    for (step = 0; !ctrun_should_stop(session); step++) {
        float one = 1;

        if (late_ms > 0)
            (void)poll(NULL, 0, late_ms);
        if (ctrun_all_reduce(world, &one, &one, 1, CTRUN_F32, CTRUN_SUM, NULL, &err) <
            0) {
            printf("rank %d step %llu: %s\n", ctrun_rank(session),
                   (unsigned long long)step, err.text);
            return ctrun_fail_worker(&err);
        }
        ctrun_step(session, step);
        if (step != 100)
            continue;
        (void)snprintf(path, sizeof path, "%s.%d", argv[1], ctrun_rank(session));
        if (!(ready = fopen(path, "w")) || fclose(ready))
            return 2;
    }
    printf("stopped after %llu\n", (unsigned long long)step);
    (void)fflush(stdout);
    (void)ctrun_barrier(world, NULL,
                        &err); /* else the end of one node would end the others */
    ctrun_group_close(world);
    ctrun_close(session);
    return 0;
}
