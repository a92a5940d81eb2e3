/* SPDX-License-Identifier: Apache-2.0 */
/* ctrun_step() of the program elastic_slow (tests/lib/elastic.py): from step 1000 on, or from the
 * step in the file fast_until on, a step takes a long time, so that a test can do something before
 * the training ends. */
#include <ctrun.h>
#include <poll.h>
#include <stdio.h>

void slow_step(struct ctrun_session *session, uint64_t step);

static uint64_t fast_until(void)
{
    unsigned long long step = 1000;
    FILE *file = fopen("fast_until", "re");

    if (file) {
        if (fscanf(file, "%llu", &step) != 1)
            step = 0;
        (void)fclose(file);
    }
    return step;
}

void slow_step(struct ctrun_session *session, uint64_t step)
{
    static uint64_t limit = 1000;

    if (step >= limit && step >= (limit = fast_until()))
        (void)poll(NULL, 0, 20);
    ctrun_step(session, step);
}
