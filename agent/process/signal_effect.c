/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/process/signal_effect.h"

#include <dirent.h>
#include <signal.h>
#include <sys/syscall.h>

#include "worker_sdk/base/small_file.h"
#include "worker_sdk/base/str.h"

enum {
    STATUS_MAX_BYTES = 8192 /* some 1,500 in practice */
};

/* By default these end no process. */
static const int harmless[] = {SIGCHLD, SIGURG,  SIGWINCH, SIGCONT, SIGSTOP,
                               SIGTSTP, SIGTTIN, SIGTTOU,  0};
/* These are sent in order to end a process. */
static const int meant[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGABRT, SIGKILL, 0};

static bool is_among(const int *list, int signal)
{
    while (*list && *list != signal)
        list++;
    return *list != 0;
}

/* "SigCgt:\t0000000180004a02" */
static bool has_signal(const char *status, const char *field, int signal)
{
    const char *mask = ct_small_file_find(status, field);

    return mask && strtoull(mask, NULL, 16) >> (signal - 1) & 1;
}

static bool reads_end(const char *status, int signal)
{
    return !is_among(harmless, signal) && ct_small_file_find(status, "SigCgt:") &&
           !has_signal(status, "SigCgt:", signal) &&
           !has_signal(status, "SigIgn:", signal) &&
           !has_signal(status, "SigBlk:", signal);
}

/* In sigwait(): the signals that the first thread waits for are not in its SigBlk meanwhile. */
static bool is_in_sigwait(pid_t pid)
{
    char call[32] = ""; /* "128 0x7ffd...": its number comes first */

    (void)ct_small_file_of(call, sizeof call, pid, 0, "syscall");
    return strtol(call, NULL, 10) == SYS_rt_sigtimedwait;
}

bool signal_effect_reads_fatal(const char *status, int signal)
{
    return !is_among(meant, signal) && reads_end(status, signal);
}

static bool thread_reads_fatal(pid_t pid, const char *thread, int signal)
{
    char status[STATUS_MAX_BYTES];

    (void)ct_small_file_of(status, sizeof status, pid, (pid_t)strtol(thread, NULL, 10),
                           "status");
    return signal_effect_reads_fatal(status, signal);
}

bool signal_effect_is_fatal(pid_t pid, int signal)
{
    bool is_fatal = false;
    char path[32];
    DIR *tasks;

    (void)ct_format(path, sizeof path, "/proc/%d/task", (int)pid);
    if (!(tasks = opendir(path)))
        return false;
    for (struct dirent *thread; !is_fatal && (thread = readdir(tasks));)
        if (thread->d_name[0] != '.')
            is_fatal = thread_reads_fatal(pid, thread->d_name, signal);
    closedir(tasks);
    return is_fatal;
}

bool signal_effect_is_caught(pid_t pid, int signal)
{
    char status[STATUS_MAX_BYTES];

    (void)ct_small_file_of(status, sizeof status, pid, 0, "status");
    return has_signal(status, "SigCgt:", signal);
}

bool signal_effect_ends(pid_t pid, int signal)
{
    char status[STATUS_MAX_BYTES];

    (void)ct_small_file_of(status, sizeof status, pid, 0, "status");
    return reads_end(status, signal) && !is_in_sigwait(pid);
}
