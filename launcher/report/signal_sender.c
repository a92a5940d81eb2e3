/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/signal_sender.h"

#include <signal.h>

#include "agent/process/process_name.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/signal_name.h"

enum {
    WHO_MAX = 96
};

static void describe_who(char who[WHO_MAX], int signal, pid_t sender)
{
    const char *name = ct_signal_name(signal);
    char program[PROCESS_NAME_MAX];

    (void)ct_format(who, WHO_MAX, "%s%.12s", name ? "SIG" : "signal ",
                    name ? name : "?");
    if (sender == 0) {
        (void)ct_append(who, WHO_MAX, "%s",
                        signal == SIGINT    ? " (Ctrl-C)"
                        : signal == SIGQUIT ? " (Ctrl-\\)"
                                            : " from the kernel");
        return;
    }
    (void)process_name(program, sender);
    (void)ct_append(who, WHO_MAX, " from pid %d%s%s%s", (int)sender,
                    *program ? " (" : "", program, *program ? ")" : "");
}

void signal_sender_describe(char text[SIGNAL_SENDER_TEXT_MAX], int signal, pid_t sender,
                            int interrupts)
{
    static const char *const what[] = {
        "stopping", "stopping (press again to kill)",
        "SIGTERM to the workers, 2 s (press again to kill at once)",
        "killing the workers"};
    char who[WHO_MAX];
    const int step = signal != SIGINT || interrupts < 1 ? 0
                     : interrupts > 3                   ? 3
                                                        : interrupts;

    describe_who(who, signal, sender);
    (void)ct_format(text, SIGNAL_SENDER_TEXT_MAX, "%s: %s", who, what[step]);
}

void signal_sender_describe_passed(char text[SIGNAL_SENDER_TEXT_MAX], int signal,
                                   pid_t sender)
{
    char who[WHO_MAX];

    describe_who(who, signal, sender);
    (void)ct_format(text, SIGNAL_SENDER_TEXT_MAX, "%s: passed on to the workers", who);
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
