/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/process_name.h"

#include <ctype.h>

#include "agent/loop/signals.h"
#include "worker_sdk/base/signal_name.h"
#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

char *process_name(char dst[PROCESS_NAME_MAX], pid_t pid)
{
    *dst = '\0';
    if (pid > 0)
        (void)ct_small_file_of(dst, PROCESS_NAME_MAX, pid, 0, "comm");
    dst[strcspn(dst, "\n")] = '\0';
    for (char *at = dst; *at; at++)
        if (!isgraph((unsigned char)*at)) /* a process may give itself any name */
            *at = '?';
    return dst;
}

char *process_describe_sender(char dst[PROCESS_SENDER_MAX], int signal, pid_t sender)
{
    char name[CT_SIGNAL_NAME_MAX];
    char program[PROCESS_NAME_MAX];

    (void)ct_copy(dst, PROCESS_SENDER_MAX, ct_signal_format(name, signal));
    if (sender > 0) {
        (void)process_name(program, sender);
        (void)ct_append(dst, PROCESS_SENDER_MAX, " from pid %d%s%s%s", (int)sender,
                        *program ? " (" : "", program, *program ? ")" : "");
    } else if (sender == SIGNALS_OUTSIDE) {
        (void)ct_append(dst, PROCESS_SENDER_MAX, " from outside of this container");
    } else {
        (void)ct_append(dst, PROCESS_SENDER_MAX, "%s",
                        signal == SIGINT    ? " (Ctrl-C)"
                        : signal == SIGQUIT ? " (Ctrl-\\)"
                                            : " from the kernel");
    }
    return dst;
}
