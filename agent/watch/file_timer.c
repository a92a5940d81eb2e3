/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/file_timer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/seldom.h"

struct entry {
    pid_t pid;
    int signal;
    uint64_t expires_ms; /* monotonic: setting the wall clock has no effect */
    char *scope;         /* owned */
};

struct file_timer {
    struct file_timer_options options;
    struct loop_watch *pipe;
    struct loop_timer *timer; /* for the earliest of all entries */
    struct entry entries[FILE_TIMER_TIMERS_MAX];
    size_t count;
    struct ct_seldom refused;
    char line[FILE_TIMER_LINE_MAX_BYTES]; /* an unfinished line */
    size_t used;
    bool is_skipping; /* skipping the rest of a line that is too long */
};

static void on_readable(void *context, unsigned events);
static void on_due(void *context);

/* ---- Entries ------------------------------------------------------------------------- */

/* The last entry takes its place: loops over the entries go backwards. */
static void remove_entry(struct file_timer *file_timer, size_t i)
{
    free(file_timer->entries[i].scope);
    file_timer->entries[i] = file_timer->entries[--file_timer->count];
}

static void arm(struct file_timer *file_timer)
{
    uint64_t nearest_ms = UINT64_MAX;
    const uint64_t now_ms = ct_now_ms();

    for (size_t i = 0; i < file_timer->count; i++)
        if (file_timer->entries[i].expires_ms < nearest_ms)
            nearest_ms = file_timer->entries[i].expires_ms;
    if (nearest_ms == UINT64_MAX)
        loop_timer_stop(file_timer->timer);
    else
        loop_timer_set(file_timer->timer,
                       nearest_ms > now_ms ? nearest_ms - now_ms : 0);
}

static void remove_named(struct file_timer *file_timer, pid_t pid, const char *scope)
{
    for (size_t i = file_timer->count; i-- > 0;)
        if (file_timer->entries[i].pid == pid &&
            strcmp(file_timer->entries[i].scope, scope) == 0)
            remove_entry(file_timer, i);
}

/* Removes timers of processes that are gone. */
static void remove_stale(struct file_timer *file_timer)
{
    for (size_t i = file_timer->count; i-- > 0;)
        if (!file_timer->options.is_ours(file_timer->options.context,
                                         file_timer->entries[i].pid))
            remove_entry(file_timer, i);
}

/* From the wall clock's seconds of the worker, which is on this machine, to our monotonic clock. */
static uint64_t to_monotonic_ms(double wall_s)
{
    const double left_s = wall_s - (double)ct_wall_ns() / 1e9;

    if (!(left_s > 0))
        return ct_now_ms();
    if (left_s > FILE_TIMER_TIMEOUT_MAX_S)
        return ct_deadline_ms((uint64_t)FILE_TIMER_TIMEOUT_MAX_S * 1000);
    return ct_deadline_ms((uint64_t)(left_s * 1000) + 1);
}

static void add_entry(struct file_timer *file_timer, const struct agent_timer *request)
{
    struct entry *entry = &file_timer->entries[file_timer->count];

    if (file_timer->count == FILE_TIMER_TIMERS_MAX) {
        remove_stale(file_timer);
        entry = &file_timer->entries[file_timer->count];
    }
    if (file_timer->count == FILE_TIMER_TIMERS_MAX ||
        !(entry->scope = ct_strdup(request->scope))) {
        ct_log_seldom(
            &file_timer->refused, CTRUN_LOG_WARN,
            "file timer: refused: too many timers, or out of memory pid=%d scope=%s",
            request->pid, request->scope);
        return;
    }
    entry->pid = request->pid;
    entry->signal = request->signal;
    entry->expires_ms = to_monotonic_ms(request->expires_s);
    file_timer->count++;
}

static void on_due(void *context)
{
    struct file_timer *file_timer = context;
    const struct file_timer_options *options = &file_timer->options;
    const uint64_t now_ms = ct_now_ms();

    for (size_t i = file_timer->count; i-- > 0;) {
        struct entry *entry = &file_timer->entries[i];
        const int signal = entry->signal;

        if (entry->expires_ms > now_ms)
            continue;
        if (!options->is_ours(options->context, entry->pid)) {
            remove_entry(file_timer, i);
            continue;
        }
        entry->signal = SIGKILL;
        entry->expires_ms = ct_deadline_ms(options->grace_ms);
        /* The callback only sends a signal: it must not change the entries, since this loop
         * continues with them. */
        options->on_expired(options->context, entry->pid, entry->scope, signal);
        if (signal == SIGKILL)
            remove_entry(file_timer, i);
    }
    arm(file_timer);
}

/* ---- Lines --------------------------------------------------------------------------- */

static void take_line(struct file_timer *file_timer, const char *line, size_t length)
{
    const struct file_timer_options *options = &file_timer->options;
    struct agent_timer request;

    if (length == 0)
        return;
    if (options->parse(options->context, line, length, &request) < 0) {
        ct_log_seldom(&file_timer->refused, CTRUN_LOG_WARN,
                      "file timer: a malformed line of %zu bytes", length);
        return;
    }
    if (!options->is_ours(options->context, request.pid)) {
        ct_log_seldom(&file_timer->refused, CTRUN_LOG_WARN,
                      "file timer: pid=%d is not a process of a worker", request.pid);
        return;
    }
    /* A line with the same pid and scope replaces the timer; a line without a time or a signal only
     * ends the timer. */
    remove_named(file_timer, request.pid, request.scope);
    if (request.expires_s >= 0 && request.signal > 0)
        add_entry(file_timer, &request);
}

static void take_bytes(struct file_timer *file_timer, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != '\n' && file_timer->used < sizeof file_timer->line) {
            file_timer->line[file_timer->used++] = bytes[i];
        } else if (bytes[i] != '\n') {
            file_timer->is_skipping =
                true; /* longer than any line a writer could write as a whole */
        } else {
            if (!file_timer->is_skipping)
                take_line(file_timer, file_timer->line, file_timer->used);
            file_timer->used = 0;
            file_timer->is_skipping = false;
        }
    }
}

/* Reads one piece per turn of the loop: a process that writes without end must not block the
 * agent. */
static void on_readable(void *context, unsigned events)
{
    struct file_timer *file_timer = context;
    char bytes[FILE_TIMER_LINE_MAX_BYTES];
    ssize_t got = read(loop_watch_fd(file_timer->pipe), bytes, sizeof bytes);

    (void)events;
    if (got <= 0)
        return; /* our own writing end is open: there is no end of file */
    take_bytes(file_timer, bytes, (size_t)got);
    arm(file_timer);
}

/* ---- Life ---------------------------------------------------------------------------- */

/* mkfifo() fails if another process took the name after unlink(): a pipe or link of another user is
 * never opened. */
static int open_pipe(struct file_timer *file_timer, struct ctrun_error *err)
{
    const char *path = file_timer->options.path;
    int fd;

    if ((unlink(path) < 0 && errno != ENOENT) || mkfifo(path, 0600) < 0)
        return ct_fail(err, -errno, "file timer %s: %s", path, strerror(errno));
    /* Read and write: so there is never an end of file when the last writer closes. */
    if ((fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0)
        return ct_fail(err, -errno, "file timer %s: %s", path, strerror(errno));
    file_timer->pipe = loop_watch_open(file_timer->options.loop, fd, on_readable,
                                       file_timer);
    if (!file_timer->pipe)
        return ct_fail(err, -ENOMEM, "file timer %s: out of memory", path);
    loop_watch_for(file_timer->pipe, LOOP_READ);
    return 0;
}

int file_timer_open(struct file_timer **out, const struct file_timer_options *options,
                    struct ctrun_error *err)
{
    struct file_timer *file_timer = ct_zalloc(sizeof *file_timer);
    int rc;

    if (!file_timer)
        return ct_fail(err, -ENOMEM, "file timer: out of memory");
    file_timer->options = *options;
    if (!(file_timer->timer = loop_timer_open(options->loop, on_due, file_timer)))
        rc = ct_fail(err, -ENOMEM, "file timer: out of memory");
    else
        rc = open_pipe(file_timer, err);
    if (rc < 0) {
        file_timer_close(file_timer);
        return rc;
    }
    *out = file_timer;
    return 0;
}

void file_timer_clear(struct file_timer *file_timer)
{
    while (file_timer && file_timer->count > 0)
        remove_entry(file_timer, file_timer->count - 1);
    if (file_timer)
        arm(file_timer);
}

void file_timer_close(struct file_timer *file_timer)
{
    if (!file_timer)
        return;
    while (file_timer->count > 0)
        remove_entry(file_timer, file_timer->count - 1);
    if (file_timer->pipe)
        (void)unlink(file_timer->options.path);
    loop_watch_close(file_timer->pipe);
    loop_timer_close(file_timer->timer);
    free(file_timer);
}
