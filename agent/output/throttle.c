/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/output/throttle.h"

#include <stdlib.h>

#include "agent/loop/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"

struct throttle {
    struct rate rate;
    struct loop_timer *timer; /* runs while a report of dropped bytes is due */
    void (*report)(void *context, int rank, uint64_t lines, uint64_t bytes);
    void *context;
    int rank;
    uint64_t lines; /* dropped since the last report */
    uint64_t bytes;
};

static void on_time(void *context)
{
    throttle_flush(context);
}

struct throttle *throttle_open(struct loop *loop, uint64_t bytes_per_s,
                               void (*report)(void *context, int rank, uint64_t lines,
                                              uint64_t bytes),
                               void *context, int rank)
{
    struct throttle *throttle = ct_zalloc(sizeof *throttle);

    if (!throttle || !(throttle->timer = loop_timer_open(loop, on_time, throttle))) {
        free(throttle);
        return NULL;
    }
    rate_init(&throttle->rate, bytes_per_s, ct_now_ms());
    throttle->report = report;
    throttle->context = context;
    throttle->rank = rank;
    return throttle;
}

static void leave_out(struct throttle *throttle, bool is_line, size_t length)
{
    if (throttle->bytes == 0)
        loop_timer_set(throttle->timer, THROTTLE_REPORT_MS);
    throttle->lines += is_line;
    throttle->bytes += length;
}

bool throttle_takes(struct throttle *throttle, struct throttle_line *line,
                    const char *piece, size_t length, size_t extra)
{
    const bool is_begin = !line->is_open;
    const char end = piece[length - 1];

    if (is_begin)
        line->is_left_out = !rate_admits(&throttle->rate, ct_now_ms());
    line->is_open = end != '\n' && end != '\r';
    if (line->is_left_out)
        leave_out(throttle, is_begin, length);
    else
        rate_spend(&throttle->rate, length + extra);
    return !line->is_left_out;
}

void throttle_flush(struct throttle *throttle)
{
    if (!throttle || throttle->bytes == 0)
        return;
    loop_timer_stop(throttle->timer);
    throttle->report(throttle->context, throttle->rank, throttle->lines,
                     throttle->bytes);
    throttle->lines = throttle->bytes = 0;
}

void throttle_close(struct throttle *throttle)
{
    if (!throttle)
        return;
    throttle_flush(throttle);
    loop_timer_close(throttle->timer);
    free(throttle);
}
