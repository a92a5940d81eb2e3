/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/watch/dstate_watch.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "agent/process/reap.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

struct sleeper {
    pid_t process;
    pid_t thread;
    uint64_t since_ms; /* the first look of an unbroken series that found it in D */
    bool is_seen;      /* in this look */
};

struct dstate_watch {
    struct dstate_watch_options options;
    struct loop_timer *timer;
    struct sleeper sleepers[DSTATE_SLEEPERS_MAX];
    size_t count;
};

static bool is_in_kernel(pid_t process, pid_t thread)
{
    char stat[512];
    const char *at = ct_small_file_stat(stat, sizeof stat, process, thread);

    return at && *at == 'D';
}

static void note(struct dstate_watch *dstate_watch, pid_t process, pid_t thread,
                 uint64_t now_ms)
{
    for (size_t i = 0; i < dstate_watch->count; i++)
        /* Compares the thread only: its number is unique in a pid namespace. */
        if (dstate_watch->sleepers[i].thread == thread) {
            dstate_watch->sleepers[i].is_seen = true;
            return;
        }
    /* A state is seen only at the looks: a thread that is in D at each of them counts as never
     * having left D. A thread that wakes and sleeps again between two looks is taken for a hanging
     * one; DSTATE_LOOKS such looks in a row are unlikely. */
    if (dstate_watch->count < DSTATE_SLEEPERS_MAX) /* one is enough for a report */
        dstate_watch->sleepers[dstate_watch->count++] = (struct sleeper){
            process, thread, now_ms, true};
}

static void look_at(void *context, const struct reap_process *process)
{
    struct dstate_watch *dstate_watch = context;
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
            note(dstate_watch, process->pid, (pid_t)thread, now_ms);
    }
    closedir(tasks);
}

/* Removes threads that were not in D at this look: they start again. */
static void drop_unseen(struct dstate_watch *dstate_watch)
{
    for (size_t i = dstate_watch->count; i-- > 0;) {
        if (!dstate_watch->sleepers[i].is_seen)
            dstate_watch->sleepers[i] = dstate_watch->sleepers[--dstate_watch->count];
        else
            dstate_watch->sleepers[i].is_seen = false;
    }
}

static void arm(struct dstate_watch *dstate_watch)
{
    uint64_t period_ms = dstate_watch->options.limit_ms / DSTATE_LOOKS;

    period_ms = period_ms < DSTATE_PERIOD_MIN_MS ? DSTATE_PERIOD_MIN_MS : period_ms;
    loop_timer_set(dstate_watch->timer,
                   period_ms < DSTATE_PERIOD_MAX_MS ? period_ms : DSTATE_PERIOD_MAX_MS);
}

static void on_time(void *context)
{
    struct dstate_watch *dstate_watch = context;
    const uint64_t now_ms = ct_now_ms();
    char where[128];

    (void)reap_scan(NULL, look_at, dstate_watch);
    drop_unseen(dstate_watch);
    arm(dstate_watch);
    for (size_t i = 0; i < dstate_watch->count; i++) {
        const struct sleeper sleeper = dstate_watch->sleepers[i];

        if (now_ms - sleeper.since_ms < dstate_watch->options.limit_ms ||
            now_ms < sleeper.since_ms)
            continue;
        ct_small_file_wait(where, sizeof where, sleeper.process, sleeper.thread);
        /* before the callback, which may destroy this object: nothing of it is used afterwards */
        dstate_watch_stop(dstate_watch);
        dstate_watch->options.on_stuck(dstate_watch->options.context, sleeper.process,
                                       sleeper.thread, *where ? where : "unknown",
                                       now_ms - sleeper.since_ms);
        return;
    }
}

int dstate_watch_create(struct dstate_watch **out,
                        const struct dstate_watch_options *options)
{
    struct dstate_watch *dstate_watch = ct_zalloc(sizeof *dstate_watch);

    if (!dstate_watch)
        return -ENOMEM;
    dstate_watch->options = *options;
    if (!(dstate_watch->timer = loop_timer_open(options->loop, on_time,
                                                dstate_watch))) {
        free(dstate_watch);
        return -ENOMEM;
    }
    *out = dstate_watch;
    return 0;
}

void dstate_watch_start(struct dstate_watch *dstate_watch)
{
    if (dstate_watch)
        arm(dstate_watch);
}

void dstate_watch_stop(struct dstate_watch *dstate_watch)
{
    if (!dstate_watch)
        return;
    dstate_watch->count = 0;
    loop_timer_stop(dstate_watch->timer);
}

void dstate_watch_destroy(struct dstate_watch *dstate_watch)
{
    if (!dstate_watch)
        return;
    loop_timer_close(dstate_watch->timer);
    free(dstate_watch);
}
