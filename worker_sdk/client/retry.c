/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/client/retry.h"

#include <poll.h>

#include "worker_sdk/base/clock.h"

enum {
    RETRY_FIRST_MS = 5,
    RETRY_LAST_MS = 1000,
};

void ct_retry_init(struct ct_retry *retry, uint64_t deadline_ms)
{
    *retry = (struct ct_retry){.deadline_ms = deadline_ms, .pause_ms = RETRY_FIRST_MS};
}

bool ct_retry_pause(struct ct_retry *retry)
{
    /* any varying number will do */
    uint64_t spread = ct_now_ns() / 64 % (retry->pause_ms + 1);
    uint64_t pause = retry->pause_ms / 2 + spread;
    uint64_t wake = ct_deadline_ms(pause);
    int left = ct_left_ms(retry->deadline_ms);

    if ((uint64_t)left <= pause)
        return false;
    while ((left = ct_left_ms(wake)) > 0)
        (void)poll(NULL, 0, left); /* EINTR: the loop continues the sleep */
    retry->pause_ms = 2 * retry->pause_ms < RETRY_LAST_MS ? 2 * retry->pause_ms
                                                          : RETRY_LAST_MS;
    return true;
}
