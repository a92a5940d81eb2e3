/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/clock_offset.h"

void clock_offset_add(struct clock_offset *offset, uint64_t asked_ns,
                      uint64_t server_ns, uint64_t answered_ns)
{
    const uint64_t half_ns = (answered_ns - asked_ns) / 2;

    if (answered_ns < asked_ns)
        return; /* no answer to a question of ours */
    offset->samples[offset->next] = (struct clock_offset_sample){
        .at_ns = answered_ns,
        .ahead_ns = (int64_t)(server_ns - (asked_ns + half_ns)),
        .doubt_ns = half_ns};
    offset->next = (offset->next + 1) % CLOCK_OFFSET_SAMPLES;
    offset->count += offset->count < CLOCK_OFFSET_SAMPLES;
}

bool clock_offset_get(const struct clock_offset *offset, uint64_t now_ns,
                      int64_t *ahead_ns, uint64_t *doubt_ns)
{
    *doubt_ns = UINT64_MAX;
    for (int i = 0; i < offset->count; i++) {
        const struct clock_offset_sample *sample = &offset->samples[i];
        const uint64_t age_ns = now_ns > sample->at_ns ? now_ns - sample->at_ns : 0;
        const uint64_t doubt = sample->doubt_ns +
                               age_ns / 1000000 * CLOCK_OFFSET_DRIFT_PPM;

        if (doubt >= *doubt_ns)
            continue;
        *ahead_ns = sample->ahead_ns;
        *doubt_ns = doubt;
    }
    return offset->count >= CLOCK_OFFSET_SAMPLES_MIN;
}
