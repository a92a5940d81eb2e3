/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/clock.h"

#include <limits.h>
#include <time.h>

static uint64_t read_clock_ns(clockid_t id)
{
    struct timespec now;

    (void)clock_gettime(id, &now); /* cannot fail for these ids */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t ct_now_ns(void)
{
    return read_clock_ns(CLOCK_BOOTTIME);
}

uint64_t ct_suspended_ms(void)
{
    const uint64_t monotonic_ns = read_clock_ns(CLOCK_MONOTONIC);

    return (ct_now_ns() - monotonic_ns) / 1000000u;
}

uint64_t ct_now_ms(void)
{
    return ct_now_ns() / 1000000u;
}

uint64_t ct_deadline_ms(uint64_t timeout_ms)
{
    return ct_deadline_after(ct_now_ms(), timeout_ms);
}

int ct_left_ms(uint64_t deadline_ms)
{
    uint64_t now = ct_now_ms();

    if (deadline_ms <= now)
        return 0;
    return deadline_ms - now > INT_MAX ? INT_MAX : (int)(deadline_ms - now);
}

uint64_t ct_wall_ns(void)
{
    return read_clock_ns(CLOCK_REALTIME);
}

void ct_format_wall(char *dst, uint64_t wall_ns)
{
    time_t seconds = (time_t)(wall_ns / 1000000000u);
    struct tm local;

    dst[0] = '\0';
    if (localtime_r(&seconds, &local))
        (void)strftime(dst, CT_CLOCK_TEXT_MAX, "%Y-%m-%d_%H:%M:%S", &local);
}
