/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/cond.h"

#include <time.h>

#include "worker_sdk/base/clock.h"

void ct_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool ct_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline_ms)
{
    const int left_ms = ct_left_ms(deadline_ms);
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC,
                        &until); /* conditions do not support CLOCK_BOOTTIME */
    until.tv_nsec += left_ms % 1000 * 1000000L;
    until.tv_sec += left_ms / 1000 + until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    return pthread_cond_timedwait(cond, mutex, &until) == 0;
}
