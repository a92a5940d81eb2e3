/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/node/restart_delay.h"

#include <stdbool.h>

static bool has_progress(struct restart_delay *delay, int64_t step, uint64_t lasted_ms,
                         uint64_t settled_ms)
{
    if (step > delay->best_step) {
        delay->best_step = step;
        return true;
    }
    return delay->best_step < 0 && lasted_ms >= settled_ms;
}

uint64_t restart_delay_next(struct restart_delay *delay,
                            const struct restart_delay_options *options, int64_t step,
                            uint64_t lasted_ms, uint64_t random)
{
    uint64_t ms = options->first_ms;

    if (has_progress(delay, step, lasted_ms, options->settled_ms))
        delay->failures = 0;
    for (uint32_t i = 0; i < delay->failures && ms < options->max_ms; i++)
        ms *= 2;
    delay->failures += delay->failures < UINT32_MAX;
    if (ms > options->max_ms)
        ms = options->max_ms;
    return ms - ms / 2 + random % (ms / 2 + 1);
}
