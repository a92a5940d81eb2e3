/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"

struct entry {
    pid_t pid;
    int signal;
    uint64_t expires_ms; /* monotonic: a clock that is set does not matter */
    char *scope;         /* owned */
};

struct watchdog {
    struct watchdog_options options;
    struct loop_watch *pipe;
    struct loop_timer *timer; /* the nearest of all entries */
    struct entry entries[WATCHDOG_TIMERS_MAX];
    size_t count;
    char line[WATCHDOG_LINE_MAX_BYTES]; /* begun, its end has not come */
    size_t used;
    bool is_skipping; /* the rest of a line that is too long */
};

static void on_readable(void *context, unsigned events);
static void on_due(void *context);

/* ---- Entries ------------------------------------------------------------------------- */

static void remove_entry(struct watchdog *watchdog, size_t i)
{
    free(watchdog->entries[i].scope);
    watchdog->entries[i] = watchdog->entries[--watchdog->count];
}

static void arm(struct watchdog *watchdog)
{
    uint64_t nearest_ms = UINT64_MAX;
    const uint64_t now_ms = ct_now_ms();

    for (size_t i = 0; i < watchdog->count; i++)
        if (watchdog->entries[i].expires_ms < nearest_ms)
            nearest_ms = watchdog->entries[i].expires_ms;
    if (nearest_ms == UINT64_MAX)
        loop_timer_stop(watchdog->timer);
    else
        loop_timer_set(watchdog->timer, nearest_ms > now_ms ? nearest_ms - now_ms : 0);
}

static void remove_named(struct watchdog *watchdog, pid_t pid, const char *scope)
{
    for (size_t i = watchdog->count; i-- > 0;)
        if (watchdog->entries[i].pid == pid &&
            strcmp(watchdog->entries[i].scope, scope) == 0)
            remove_entry(watchdog, i);
}

/* Timers of processes that are gone: they would be dropped when they run out. */
static void remove_stale(struct watchdog *watchdog)
{
    for (size_t i = watchdog->count; i-- > 0;)
        if (!watchdog->options.is_ours(watchdog->options.context,
                                       watchdog->entries[i].pid))
            remove_entry(watchdog, i);
}

/* Wall clock seconds of the worker, which is on this machine, to our monotonic clock. */
static uint64_t to_monotonic_ms(double wall_s)
{
    const double left_s = wall_s - (double)ct_wall_ns() / 1e9;

    if (!(left_s > 0))
        return ct_now_ms();
    if (left_s > WATCHDOG_TIMEOUT_MAX_S)
        return ct_deadline_ms((uint64_t)WATCHDOG_TIMEOUT_MAX_S * 1000);
    return ct_deadline_ms((uint64_t)(left_s * 1000) + 1);
}

static void add_entry(struct watchdog *watchdog, const struct agent_timer *request)
{
    struct entry *entry = &watchdog->entries[watchdog->count];

    if (watchdog->count == WATCHDOG_TIMERS_MAX) {
        remove_stale(watchdog);
        entry = &watchdog->entries[watchdog->count];
    }
    if (watchdog->count == WATCHDOG_TIMERS_MAX ||
        !(entry->scope = ct_strdup(request->scope))) {
        ct_warn("file timer: no room pid=%d scope=%s", request->pid, request->scope);
        return;
    }
    entry->pid = request->pid;
    entry->signal = request->signal;
    entry->expires_ms = to_monotonic_ms(request->expires_s);
    watchdog->count++;
}

static void on_due(void *context)
{
    struct watchdog *watchdog = context;
    const struct watchdog_options *options = &watchdog->options;
    const uint64_t now_ms = ct_now_ms();

    for (size_t i = watchdog->count; i-- > 0;) {
        struct entry *entry = &watchdog->entries[i];
        const int signal = entry->signal;

        if (entry->expires_ms > now_ms)
            continue;
        if (!options->is_ours(options->context, entry->pid)) {
            remove_entry(watchdog, i);
            continue;
        }
        entry->signal = SIGKILL;
        entry->expires_ms = ct_deadline_ms(options->grace_ms);
        options->on_expired(options->context, entry->pid, entry->scope, signal);
        if (signal == SIGKILL)
            remove_entry(watchdog, i);
    }
    arm(watchdog);
}

/* ---- Lines --------------------------------------------------------------------------- */

static void take_line(struct watchdog *watchdog, const char *line, size_t length)
{
    const struct watchdog_options *options = &watchdog->options;
    struct agent_timer request;

    if (length == 0)
        return;
    if (options->parse(options->context, line, length, &request) < 0) {
        ct_warn("file timer: a line of %zu bytes is none of ours", length);
        return;
    }
    if (!options->is_ours(options->context, request.pid)) {
        ct_warn("file timer: pid=%d is no process of a worker", request.pid);
        return;
    }
    remove_named(watchdog, request.pid, request.scope);
    if (request.expires_s >= 0 && request.signal > 0)
        add_entry(watchdog, &request);
}

static void take_bytes(struct watchdog *watchdog, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != '\n' && watchdog->used < sizeof watchdog->line) {
            watchdog->line[watchdog->used++] = bytes[i];
        } else if (bytes[i] != '\n') {
            watchdog->is_skipping = true; /* no writer's line: it could not be whole */
        } else {
            if (!watchdog->is_skipping)
                take_line(watchdog, watchdog->line, watchdog->used);
            watchdog->used = 0;
            watchdog->is_skipping = false;
        }
    }
}

/* One piece a turn: somebody who writes without end must not stop the rest of the agent. */
static void on_readable(void *context, unsigned events)
{
    struct watchdog *watchdog = context;
    char bytes[WATCHDOG_LINE_MAX_BYTES];
    ssize_t got = read(loop_watch_fd(watchdog->pipe), bytes, sizeof bytes);

    (void)events;
    if (got <= 0)
        return; /* our own writing end is open: there is no end of file */
    take_bytes(watchdog, bytes, (size_t)got);
    arm(watchdog);
}

/* ---- Life ---------------------------------------------------------------------------- */

static int open_pipe(struct watchdog *watchdog, struct ctrun_error *err)
{
    const char *path = watchdog->options.path;
    int fd;

    if ((unlink(path) < 0 && errno != ENOENT) || mkfifo(path, 0600) < 0)
        return ct_fail(err, -errno, "file timer %s: %s", path, strerror(errno));
    /* Read and write: the pipe never sees its last writer go. */
    if ((fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0)
        return ct_fail(err, -errno, "file timer %s: %s", path, strerror(errno));
    watchdog->pipe = loop_watch_open(watchdog->options.loop, fd, on_readable, watchdog);
    if (!watchdog->pipe)
        return ct_fail(err, -ENOMEM, "file timer %s: out of memory", path);
    loop_watch_for(watchdog->pipe, LOOP_READ);
    return 0;
}

int watchdog_open(struct watchdog **out, const struct watchdog_options *options,
                  struct ctrun_error *err)
{
    struct watchdog *watchdog = ct_zalloc(sizeof *watchdog);
    int rc;

    if (!watchdog)
        return ct_fail(err, -ENOMEM, "file timer: out of memory");
    watchdog->options = *options;
    if (!(watchdog->timer = loop_timer_open(options->loop, on_due, watchdog)))
        rc = ct_fail(err, -ENOMEM, "file timer: out of memory");
    else
        rc = open_pipe(watchdog, err);
    if (rc < 0) {
        watchdog_close(watchdog);
        return rc;
    }
    *out = watchdog;
    return 0;
}

void watchdog_clear(struct watchdog *watchdog)
{
    while (watchdog && watchdog->count > 0)
        remove_entry(watchdog, watchdog->count - 1);
    if (watchdog)
        arm(watchdog);
}

void watchdog_close(struct watchdog *watchdog)
{
    if (!watchdog)
        return;
    while (watchdog->count > 0)
        remove_entry(watchdog, watchdog->count - 1);
    if (watchdog->pipe)
        (void)unlink(watchdog->options.path);
    loop_watch_close(watchdog->pipe);
    loop_timer_close(watchdog->timer);
    free(watchdog);
}
