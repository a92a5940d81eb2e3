/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/notice_end.h"

#include <signal.h>

#include "launcher/config/host_slot.h"
#include "launcher/report/messages.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/signal_name.h"

enum {
    SOON_S = 10 * 60, /* too short for most programs */
    TEXT_MAX = 256
};

static void print_notice(const struct config *config, enum messages_level level,
                         const char *text)
{
    const struct host_slot *slot = host_slot_get();

    if (config->run.node_rank > 0 || config->run.task.is_quiet ||
        (slot->is_given && slot->place > 0))
        ct_info("%s", text);
    else if (level == MESSAGES_WARNING)
        messages_warn(0, "%s", text);
    else
        messages_notice("%s", text);
}

static unsigned long long to_seconds(uint64_t ms)
{
    return (ms + 500) / 1000;
}

int notice_end_check(const struct config *config, struct ctrun_error *err)
{
    const int64_t left_s = config_time_left(config);

    if (config->stop.end_s == 0 || config->stop.stop_before_end_s == 0 ||
        (uint64_t)left_s > config->stop.stop_before_end_s)
        return 0;
    return ct_fail(
        err, CTRUN_E_USAGE,
        "--stop-before-end=%llu: the allocation ends in %lld s, so no worker would "
        "run; ask for a longer allocation, or lower --stop-before-end",
        (unsigned long long)config->stop.stop_before_end_s, (long long)left_s);
}

void notice_end_beginning(const struct config *config)
{
    const int64_t left_s = config_time_left(config);
    char text[TEXT_MAX];
    char then[64] = "";
    char name[CT_SIGNAL_NAME_MAX];

    if (config->stop.end_s == 0 && config->stop.stop_before_end_s == 0)
        return;
    if (config->stop.end_s == 0) {
        (void)ct_format(text, sizeof text,
                        "--stop-before-end=%llu does nothing: no batch system gives "
                        "the end of the allocation; set " CT_ENV_END_TIME
                        " to that time in seconds since 1970",
                        (unsigned long long)config->stop.stop_before_end_s);
    } else {
        if (left_s >= SOON_S)
            return;
        if (config->stop.stop_before_end_s && config->stop.end_signal == SIGTERM)
            (void)ct_format(then, sizeof then, "; the run ends %llu s before",
                            (unsigned long long)config->stop.stop_before_end_s);
        else if (config->stop.stop_before_end_s)
            (void)ct_format(then, sizeof then, "; the workers get %s %llu s before",
                            ct_signal_format(name, config->stop.end_signal),
                            (unsigned long long)config->stop.stop_before_end_s);
        (void)ct_format(text, sizeof text, "the allocation ends in %lld s%s",
                        (long long)left_s, then);
    }
    print_notice(config, config->stop.end_s == 0 ? MESSAGES_WARNING : MESSAGES_NEWS,
                 text);
}

void notice_end_near(const struct config *config, const struct agent_ending *ending)
{
    char text[TEXT_MAX];
    char what[128] = "stopping";
    char name[CT_SIGNAL_NAME_MAX];

    if (!ending->is_ending)
        (void)ct_format(what, sizeof what, "sending %s to the workers",
                        ct_signal_format(name, ending->signal));
    else if (ending->has_workers)
        (void)ct_format(what, sizeof what,
                        "sending %s to the workers, up to %llu s for checkpoints",
                        ct_signal_format(name, ending->signal),
                        to_seconds(ending->grace_ms));
    (void)ct_format(text, sizeof text, "the allocation ends in %llu s: %s",
                    to_seconds(ending->left_ms), what);
    print_notice(config, MESSAGES_NEWS, text);
}
