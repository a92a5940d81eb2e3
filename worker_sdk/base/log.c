/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <strings.h>

#include "worker_sdk/base/plain.h"

enum {
    LOG_LINE_MAX = 1024
}; /* longer lines are cut */

/* The lock is held while the sink runs: lines of several threads do not mix, and a replaced sink is
 * not called again. */
static struct {
    pthread_mutex_t lock;
    ctrun_log_fn *sink;
    void *context;
    enum ctrun_log_level level;
} target = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool is_in_sink; /* which logs itself: this thread has the lock */

void ct_log_set_sink(ctrun_log_fn *sink, void *context, enum ctrun_log_level level)
{
    pthread_mutex_lock(&target.lock);
    target.sink = sink;
    target.context = context;
    target.level = level;
    pthread_mutex_unlock(&target.lock);
}

void ctrun_log_to(ctrun_log_fn *sink, void *context, enum ctrun_log_level level)
{
    ct_log_set_sink(sink, context, level);
}

int ct_log_parse_level(const char *text, enum ctrun_log_level *out)
{
    static const struct {
        const char *name;
        enum ctrun_log_level level;
    } levels[] = {
        {"critical", CTRUN_LOG_ERR}, {"error", CTRUN_LOG_ERR}, {"err", CTRUN_LOG_ERR},
        {"warning", CTRUN_LOG_WARN}, {"warn", CTRUN_LOG_WARN}, {"info", CTRUN_LOG_INFO},
        {"debug", CTRUN_LOG_DEBUG},
    };

    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (strcasecmp(text, levels[i].name) == 0) {
            *out = levels[i].level;
            return 0;
        }
    }
    return -EINVAL;
}

void ct_log(enum ctrun_log_level level, const char *fmt, ...)
{
    const bool is_inner = is_in_sink;
    char line[LOG_LINE_MAX];
    va_list args;

    if (!is_inner)
        pthread_mutex_lock(&target.lock);
    is_in_sink = true;
    if (target.sink && level <= target.level) {
        va_start(args, fmt);
        (void)vsnprintf(line, sizeof line, fmt, args);
        va_end(args);
        ct_make_plain(line, true);
        target.sink(target.context, level, line);
    }
    is_in_sink = is_inner;
    if (!is_inner)
        pthread_mutex_unlock(&target.lock);
}
