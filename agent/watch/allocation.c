/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/allocation.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"

enum {
    OURS_MIN_MS = 1000
};

struct allocation {
    struct loop_watch *watch;
    loop_timer_fn *fn;
    void *context;
};

static void on_readable(void *context, unsigned events)
{
    struct allocation *allocation = context;
    uint64_t times;

    (void)events;
    if (read(loop_watch_fd(allocation->watch), &times, sizeof times) == sizeof times)
        allocation->fn(allocation->context);
}

int allocation_open(struct allocation **out, struct loop *loop, int64_t at_s,
                    loop_timer_fn *fn, void *context)
{
    /* All zero would mean never. */
    const struct itimerspec when = {.it_value.tv_sec = at_s > 0 ? at_s : 1};
    struct allocation *allocation = ct_zalloc(sizeof *allocation);
    int fd;

    if (!allocation)
        return -ENOMEM;
    fd = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0 || timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL) < 0) {
        const int rc = -errno;

        if (fd >= 0)
            close(fd);
        free(allocation);
        return rc;
    }
    allocation->fn = fn;
    allocation->context = context;
    if (!(allocation->watch = loop_watch_open(loop, fd, on_readable, allocation))) {
        free(allocation);
        return -ENOMEM;
    }
    loop_watch_for(allocation->watch, LOOP_READ);
    *out = allocation;
    return 0;
}

void allocation_close(struct allocation *allocation)
{
    if (!allocation)
        return;
    loop_watch_close(allocation->watch);
    free(allocation);
}

uint64_t allocation_left_ms(int64_t end_s, uint64_t wall_ns)
{
    const uint64_t now_ms = wall_ns / 1000000;

    if (end_s <= 0 || (uint64_t)end_s <= now_ms / 1000)
        return 0;
    return (uint64_t)end_s > UINT64_MAX / 1000 ? UINT64_MAX
                                               : (uint64_t)end_s * 1000 - now_ms;
}

/* A tenth of the time is the agent's, for what follows the workers' end: SIGKILL, the summary, the
 * end of the other nodes. */
uint64_t allocation_grace_ms(uint64_t left_ms)
{
    const uint64_t ours_ms = left_ms / 10 > OURS_MIN_MS ? left_ms / 10 : OURS_MIN_MS;

    return left_ms > ours_ms ? left_ms - ours_ms : left_ms / 2;
}
