/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/stuck.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/limits.h"
#include "agent/reap.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

struct sleeper {
    pid_t process;
    pid_t thread;
    uint64_t since_ms; /* the first of the looks without gap that found it in D */
    bool is_seen;      /* in this look */
};

struct stuck {
    struct stuck_options options;
    struct loop_timer *timer;
    struct sleeper sleepers[STUCK_SLEEPERS_MAX];
    size_t count;
};

static void read_file(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);

    text[got > 0 ? got : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

/* The state follows the name, which is in parentheses and may hold any. */
static bool is_in_kernel(pid_t process, pid_t thread)
{
    char path[64];
    char stat[512];
    const char *end;

    (void)ct_format(path, sizeof path, "/proc/%d/task/%d/stat", process, thread);
    read_file(path, stat, sizeof stat);
    end = strrchr(stat, ')');
    return end && end[1] == ' ' && end[2] == 'D';
}

static void note(struct stuck *stuck, pid_t process, pid_t thread, uint64_t now_ms)
{
    for (size_t i = 0; i < stuck->count; i++)
        if (stuck->sleepers[i].thread == thread) {
            stuck->sleepers[i].is_seen = true;
            return;
        }
    if (stuck->count < STUCK_SLEEPERS_MAX) /* one of them is enough to tell */
        stuck->sleepers[stuck->count++] = (struct sleeper){process, thread, now_ms,
                                                           true};
}

static void look_at(void *context, const struct reap_process *process)
{
    struct stuck *stuck = context;
    const uint64_t now_ms = ct_now_ms();
    char path[64];
    DIR *tasks;

    (void)ct_format(path, sizeof path, "/proc/%d/task", process->pid);
    if (!(tasks = opendir(path)))
        return; /* gone */
    for (struct dirent *entry; (entry = readdir(tasks));) {
        int64_t thread;

        if (ct_parse_i64(entry->d_name, 1, INT32_MAX, &thread) == 0 &&
            is_in_kernel(process->pid, (pid_t)thread))
            note(stuck, process->pid, (pid_t)thread, now_ms);
    }
    closedir(tasks);
}

/* Those that woke up in between begin anew. */
static void drop_unseen(struct stuck *stuck)
{
    for (size_t i = stuck->count; i-- > 0;) {
        if (!stuck->sleepers[i].is_seen)
            stuck->sleepers[i] = stuck->sleepers[--stuck->count];
        else
            stuck->sleepers[i].is_seen = false;
    }
}

static void arm(struct stuck *stuck)
{
    uint64_t period_ms = stuck->options.limit_ms / STUCK_LOOKS;

    period_ms = period_ms < STUCK_PERIOD_MIN_MS ? STUCK_PERIOD_MIN_MS : period_ms;
    loop_timer_set(stuck->timer,
                   period_ms < STUCK_PERIOD_MAX_MS ? period_ms : STUCK_PERIOD_MAX_MS);
}

static void on_time(void *context)
{
    struct stuck *stuck = context;
    const uint64_t now_ms = ct_now_ms();
    char path[64];
    char where[128];

    (void)reap_scan(NULL, look_at, stuck);
    drop_unseen(stuck);
    arm(stuck);
    for (size_t i = 0; i < stuck->count; i++) {
        const struct sleeper sleeper = stuck->sleepers[i];

        if (now_ms - sleeper.since_ms < stuck->options.limit_ms ||
            now_ms < sleeper.since_ms)
            continue;
        (void)ct_format(path, sizeof path, "/proc/%d/task/%d/wchan", sleeper.process,
                        sleeper.thread);
        read_file(path, where, sizeof where);
        stuck_stop(stuck);
        stuck->options.on_stuck(stuck->options.context, sleeper.process, sleeper.thread,
                                *where && strcmp(where, "0") != 0 ? where : "unknown",
                                now_ms - sleeper.since_ms);
        return;
    }
}

int stuck_create(struct stuck **out, const struct stuck_options *options)
{
    struct stuck *stuck = ct_zalloc(sizeof *stuck);

    if (!stuck)
        return -ENOMEM;
    stuck->options = *options;
    if (!(stuck->timer = loop_timer_open(options->loop, on_time, stuck))) {
        free(stuck);
        return -ENOMEM;
    }
    *out = stuck;
    return 0;
}

void stuck_start(struct stuck *stuck)
{
    if (stuck)
        arm(stuck);
}

void stuck_stop(struct stuck *stuck)
{
    if (!stuck)
        return;
    stuck->count = 0;
    loop_timer_stop(stuck->timer);
}

void stuck_destroy(struct stuck *stuck)
{
    if (!stuck)
        return;
    loop_timer_close(stuck->timer);
    free(stuck);
}
