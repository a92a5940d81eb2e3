/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/signal_sender.h"

#include <signal.h>

#include "agent/process/process_name.h"
#include "worker_sdk/base/str.h"

void signal_sender_describe(char text[SIGNAL_SENDER_TEXT_MAX], int signal, pid_t sender,
                            int interrupts)
{
    static const char *const what[] = {"stopping", "stopping (press again to kill)",
                                       ("sending SIGTERM to the workers, killing them "
                                        "in 2 s (press again to kill at once)"),
                                       "killing the workers"};
    char who[PROCESS_SENDER_MAX];
    const int step = signal != SIGINT || interrupts < 1 ? 0
                     : interrupts > 3                   ? 3
                                                        : interrupts;

    (void)ct_format(text, SIGNAL_SENDER_TEXT_MAX, "%s: %s",
                    process_describe_sender(who, signal, sender), what[step]);
}

void signal_sender_describe_passed(char text[SIGNAL_SENDER_TEXT_MAX], int signal,
                                   pid_t sender)
{
    char who[PROCESS_SENDER_MAX];

    (void)ct_format(text, SIGNAL_SENDER_TEXT_MAX, "%s: passed on to the workers",
                    process_describe_sender(who, signal, sender));
}

void signal_sender_heed(int signal)
{
    struct sigaction action;

    if (signal == SIGHUP || sigaction(signal, NULL, &action) < 0 ||
        action.sa_handler != SIG_IGN)
        return;
    action = (struct sigaction){.sa_handler = SIG_DFL};
    (void)sigaction(signal, &action, NULL);
}
