/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/seldom.h"

#include <stdarg.h>
#include <stdio.h>

#include "worker_sdk/base/clock.h"

enum {
    SELDOM_LINE_MAX = 960 /* with the count after it, the text fits a log line */
};

bool ct_seldom_is_due(struct ct_seldom *seldom, uint64_t now_ms, uint64_t *more)
{
    if (seldom->printed_ms != 0 && now_ms - seldom->printed_ms < CT_SELDOM_MS) {
        seldom->suppressed++;
        return false;
    }
    *more = seldom->suppressed;
    seldom->suppressed = 0;
    seldom->printed_ms = now_ms ? now_ms : 1;
    return true;
}

bool ct_often_is_due(struct ct_often *often, uint64_t now_ms, uint64_t *more)
{
    if (often->since_ms == 0 || now_ms - often->since_ms >= CT_SELDOM_MS) {
        often->since_ms = now_ms ? now_ms : 1;
        often->count = 0;
    }
    if (often->count == CT_OFTEN_LINES) {
        often->suppressed++;
        return false;
    }
    often->count++;
    *more = often->suppressed;
    often->suppressed = 0;
    return true;
}

__attribute__((format(printf, 3, 0))) static void
log_line(enum ctrun_log_level level, uint64_t more, const char *fmt, va_list args)
{
    char line[SELDOM_LINE_MAX];

    (void)vsnprintf(line, sizeof line, fmt, args); /* cut is fine */
    if (more > 0)
        ct_log(level, "%s (and %llu more like it before)", line,
               (unsigned long long)more);
    else
        ct_log(level, "%s", line);
}

void ct_log_seldom(struct ct_seldom *seldom, enum ctrun_log_level level,
                   const char *fmt, ...)
{
    uint64_t more;
    va_list args;

    if (!ct_seldom_is_due(seldom, ct_now_ms(), &more))
        return;
    va_start(args, fmt);
    log_line(level, more, fmt, args);
    va_end(args);
}

void ct_log_often(struct ct_often *often, enum ctrun_log_level level, const char *fmt,
                  ...)
{
    uint64_t more;
    va_list args;

    if (!ct_often_is_due(often, ct_now_ms(), &more))
        return;
    va_start(args, fmt);
    log_line(level, more, fmt, args);
    va_end(args);
}
