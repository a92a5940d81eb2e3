/* SPDX-License-Identifier: Apache-2.0 */
/* How long something takes: wall time, and this thread's processor time. */
#pragma once

#include <time.h>

struct took {
    double wall_ms, cpu_ms;
};

static inline double took_read_ms(clockid_t which)
{
    struct timespec now;

    clock_gettime(which, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static inline struct took took_begin(void)
{
    return (struct took){took_read_ms(CLOCK_MONOTONIC),
                         took_read_ms(CLOCK_THREAD_CPUTIME_ID)};
}

static inline struct took took_end(struct took from)
{
    return (struct took){took_read_ms(CLOCK_MONOTONIC) - from.wall_ms,
                         took_read_ms(CLOCK_THREAD_CPUTIME_ID) - from.cpu_ms};
}
