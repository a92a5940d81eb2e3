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

/* By default it ends no process. */
static bool is_harmless(int signal)
{
    switch (signal) {
    case SIGCHLD:
    case SIGURG:
    case SIGWINCH:
    case SIGCONT:
    case SIGSTOP:
    case SIGTSTP:
    case SIGTTIN:
    case SIGTTOU: return true;
    default: return false;
    }
}

/* It is sent in order to end a process. */
static bool is_meant(int signal)
{
    switch (signal) {
    case SIGTERM:
    case SIGINT:
    case SIGQUIT:
    case SIGHUP:
    case SIGABRT:
    case SIGKILL: return true;
    default: return false;
    }
}

/* "SigCgt:\t0000000180004a02" */
static bool has_signal(const char *status, const char *field, int signal)
{
    const char *mask = ct_small_file_find(status, field);

    return mask && strtoull(mask, NULL, 16) >> (signal - 1) & 1;
}

static bool reads_end(const char *status, int signal)
{
    return !is_harmless(signal) && ct_small_file_find(status, "SigCgt:") &&
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
    return !is_meant(signal) && reads_end(status, signal);
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
