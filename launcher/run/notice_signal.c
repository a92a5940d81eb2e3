/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run/notice_signal.h"

#include <signal.h>

#include "agent/process/process_name.h"
#include "launcher/report/messages.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    ROOM_MAX = 128
};

/* ", up to 27 s for checkpoints; Slurm kills after 30 s"; empty for Ctrl-C, which does not wait so
 * long. */
static void describe_room(char *dst, const struct config *config, int signal)
{
    char why[64] = "";

    dst[0] = '\0';
    if (signal == SIGINT)
        return;
    if (config->stop.end_s)
        (void)ct_format(why, sizeof why, "; the job's time ends in %lld s",
                        (long long)config_time_left(config));
    else if (config->stop.signal_grace_ms != config->stop.grace_ms)
        (void)ct_format(why, sizeof why, "; Slurm kills after %u s",
                        config->run.kill_wait_s);
    (void)ct_format(dst, ROOM_MAX, ", up to %llu s for checkpoints%s",
                    (unsigned long long)(config->stop.signal_grace_ms / 1000), why);
}

void notice_signal(const struct config *config, const char *text, int signal,
                   pid_t sender, bool is_first)
{
    bool goes_everywhere = config->run.nodes.max > 1 && !config->stop.keeps_signals &&
                           (signal == SIGUSR1 || signal == SIGUSR2);
    char by[PROCESS_NAME_MAX];
    char room[ROOM_MAX] = "";

    if (is_first)
        describe_room(room, config, signal);
    else if (goes_everywhere)
        (void)ct_copy(room, sizeof room, " of all nodes");
    if (config->run.node_rank > 0 &&
        strcmp(process_name(by, sender), "slurmstepd") == 0)
        ct_info("%s%s", text, room);
    else
        messages_notice("%s%s", text, room);
}

void notice_signal_left(const struct config *config, uint64_t left_ms)
{
    if (config->run.node_rank <= 0)
        messages_print_line(MESSAGES_COUNTDOWN, "stopping: %llu s left for checkpoints",
                            (unsigned long long)((left_ms + 500) / 1000));
}
