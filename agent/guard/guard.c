/* SPDX-License-Identifier: Apache-2.0 */
/* A guard sleeps in sigtimedwait(): no descriptor, no thread. It wakes for a signal to pass on,
 * for an orphan of another program to reap (as pid 1 of a container it gets all orphans), for
 * the end of its child or its parent, or, in a run of several nodes, at the deadline of the
 * fence: a kernel timer then sends FENCE_SIGNAL; after a suspend it does so as soon as the
 * machine wakes up. Both guards run the same loop.
 *
 * The agent gets GUARD_LOST when the second guard ends; its handler kills all processes below
 * the agent and exits. This works in any state of the agent, since it needs no event loop.
 *
 * If all three are killed in the same instant, workers still die (PDEATHSIG); double-forked
 * processes have no subreaper left, and live until the next ctrun finds the cgroup
 * (run_cgroup.h). Each is in a session of its own, so that a kill of the guard's process group,
 * or the end of the terminal, hits only the guard. */
#include "agent/guard/guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "agent/guard/fence.h"
#include "agent/loop/limits.h"
#include "agent/loop/signals.h"
#include "agent/postmortem/oom_counter.h"
#include "agent/process/code_pages.h"
#include "agent/process/fork_limit.h"
#include "agent/process/run_cgroup.h"
#include "agent/process/orphans.h"
#include "agent/process/reap.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/signal_name.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

/* A real-time signal of our own: its default action ends an agent that has no handler yet. */
#define GUARD_LOST (SIGRTMAX - 3)

enum {
    GUARD_AFTER_AGENT_MS = 2000, /* the agent had its time before it left by itself */
    FENCE_PASSES = 8, /* the next look finds processes forked during this look */
};

/* Faults of our own code, and job control: Ctrl-Z stops the guard's terminal job, not the
 * training. */
static const int not_forwarded[] = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,
                                    SIGTRAP, SIGABRT, SIGSYS,  SIGTSTP,
                                    SIGTTIN, SIGTTOU, SIGCONT, SIGPIPE};

/* The signals that the guard waits for: all others that are not ignored (nohup). */
static void choose_signals(sigset_t *set)
{
    struct sigaction action = {.sa_handler = SIG_DFL};

    /* our parent may ignore them: without SIGCHLD exit statuses are lost, and our own two are for
     * the guards and the agent alone */
    (void)sigaction(SIGCHLD, &action, NULL);
    (void)sigaction(FENCE_SIGNAL, &action, NULL);
    (void)sigaction(GUARD_LOST, &action, NULL);
    sigfillset(set);
    for (size_t i = 0; i < sizeof not_forwarded / sizeof *not_forwarded; i++)
        sigdelset(set, not_forwarded[i]);
    for (int i = 1; i < NSIG; i++)
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigdelset(set, i);
}

static pid_t first; /* pid of the first guard; 0: none */

static char lost_text[128]; /* formatted before, because a signal handler prints it */

static void print_loss(bool is_all_gone)
{
    const char *rest = is_all_gone ? "; no process of the run is left on this node\n"
                                   : "\n";
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};

    if (poll(&out, 1, 0) == 1 && out.revents == POLLOUT) /* never wait for a reader */
        (void)!(write(STDERR_FILENO, lost_text, strlen(lost_text)) > 0 &&
                write(STDERR_FILENO, rest, strlen(rest)) > 0);
}

/* The guard above us has ended. Async-signal-safe, with all that it calls. */
static void on_guard_lost(int signal)
{
    struct reap_process survivor;
    int left;

    (void)signal;
    left = reap_kill_all(NULL, AGENT_KILL_WAIT_MS, &survivor);
    if (getppid() != first)
        print_loss(left == 0);
    _exit(CT_EXIT_SIGNAL + SIGKILL);
}

/* For a child of `guard`: makes it notice the guard's end, and sets its name. */
static void go_below(pid_t guard, const char *name)
{
    (void)prctl(PR_SET_PDEATHSIG, GUARD_LOST);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)prctl(PR_SET_NAME, name);
    (void)setsid();
    if (getppid() != guard)
        _exit(CT_EXIT_SIGNAL + SIGKILL); /* it died before prctl */
}

/* Unblocks all signals, also those that our own parent had blocked: else the agent might never
 * get a SIGTERM. */
static void become_agent(pid_t guard)
{
    struct sigaction action = {.sa_handler = on_guard_lost};
    sigset_t none;

    sigfillset(&action.sa_mask);
    (void)sigaction(GUARD_LOST, &action, NULL);
    go_below(guard, "ctrun-agent");
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static sigset_t
    forwarded; /* signals that were passed on; zeroed, as sigemptyset() leaves it */

static void forward(pid_t child, const siginfo_t *info)
{
    const union sigval sender = {.sival_int = signals_sender(info)};

    if (info->si_signo == GUARD_LOST || info->si_signo == FENCE_SIGNAL)
        return;
    (void)sigaddset(&forwarded, info->si_signo);
    (void)sigqueue(child, info->si_signo, sender); /* gone meanwhile: fine */
}

/* Reaps processes that have ended, orphans included. True when the child was one of them. */
static bool reap_ended(pid_t child, int *status)
{
    bool is_child_gone = false;
    pid_t pid;
    int ended;

    while ((pid = waitpid(-1, &ended, WNOHANG)) > 0) {
        if (pid != child)
            continue;
        *status = ended;
        is_child_gone = true;
    }
    return is_child_gone;
}

/* Sets the timer to the fence's deadline. Without a timer the fence is checked at each signal. */
static void set_alarm(timer_t timer, bool has_timer)
{
    const uint64_t next_ms = fence_next_ms();
    const struct itimerspec when = {
        .it_value = {.tv_sec = (time_t)(next_ms / 1000),
                     .tv_nsec = (long)(next_ms % 1000) * 1000000L}};

    if (has_timer && next_ms != UINT64_MAX)
        (void)timer_settime(timer, TIMER_ABSTIME, &when, NULL);
}

struct spare {
    pid_t pids[2];
    int killed;
};

static void kill_others(void *context, const struct reap_process *process)
{
    struct spare *spare = context;

    if (process->pid == spare->pids[0] || process->pid == spare->pids[1])
        return;
    spare->killed++;
    (void)kill(process->pid, SIGKILL);
}

/* The agent is silent, and processes that it started must not outlive the lease. A stopped agent
 * can start none meanwhile; if it has just continued, its own deadline ends the workers. */
static void kill_workers(pid_t child, const struct reap_keep *keep)
{
    const pid_t agent = fence_agent();
    struct spare spare = {.pids = {child, agent}, .killed = 1};

    for (int i = 0; i < FENCE_PASSES && spare.killed > 0; i++) {
        spare.killed = 0;
        (void)reap_scan(keep, kill_others, &spare);
    }
    ct_event_emit("guard_fenced", CT_INT("agent_pid", agent));
    fprintf(
        stderr,
        "ctrun: the agent (pid %d) is stopped or hangs, and has received nothing from "
        "the rendezvous in time: its workers were killed\n",
        (int)agent);
}

/* Waits for a signal, after a first wait with a time limit: only after that, code pages are
 * dropped. While workers start they need the cores more, and the dynamic linker, which is still
 * needed, is among these pages. */
static int wait_for_signal(const sigset_t *set, siginfo_t *info)
{
    static const struct timespec start = {.tv_nsec = AGENT_START_MS * 1000000L};
    static bool is_small;

    if (!is_small) {
        const int signal = sigtimedwait(set, info, &start);

        if (signal > 0)
            return signal;
        code_pages_drop(true);
        is_small = true;
    }
    return sigtimedwait(set, info, NULL); /* NULL on Linux: no time limit */
}

/* Waits until the child has ended; returns its status. The second guard exits with all processes
 * below it when the first one is gone. */
static int wait_for(pid_t child, const struct reap_keep *keep, const sigset_t *set)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = FENCE_SIGNAL};
    timer_t timer = NULL;
    const bool has_timer = timer_create(CLOCK_BOOTTIME, &event, &timer) == 0;
    siginfo_t info;
    int status = 0;

    for (;;) {
        set_alarm(timer, has_timer);
        if (wait_for_signal(set, &info) < 0)
            info.si_signo = FENCE_SIGNAL; /* a child was only stopped or continued */
        if (info.si_signo == GUARD_LOST && getpid() != first && getppid() != first) {
            /* The agent first: it must not report the end of its workers as a failure of the
             * job. */
            (void)kill(child, SIGKILL);
            on_guard_lost(GUARD_LOST);
        }
        if (fence_is_over())
            kill_workers(child, keep);
        if (info.si_signo == SIGCHLD && reap_ended(child, &status))
            break;
        if (info.si_signo != SIGCHLD)
            forward(child, &info);
    }
    if (has_timer)
        (void)timer_delete(timer);
    return status;
}

static void note_process(void *context, const struct reap_process *process)
{
    orphans_note(context, process->pid);
}

/* The signal's sender wanted this end; the agent had no handler yet, or was told not to handle
 * the signal. */
static void print_death(const char *who, int signal, int left)
{
    char name[CT_SIGNAL_NAME_MAX];
    const char *rest = left > 0 ? "" : "; no process of the run is left on this node";

    if (sigismember(&forwarded, signal) == 1)
        fprintf(stderr, "ctrun: stopped by %s (%d)%s\n", ct_signal_format(name, signal),
                signal, rest);
    else
        fprintf(stderr, "ctrun: error[E_SIGNAL]: %s died of %s (%d)%s\n", who,
                ct_signal_format(name, signal), signal, rest);
}

static void report_end(int status, int left, const struct reap_process *survivor)
{
    ct_event_emit(
        "guard_ended",
        CT_INT("agent_exit_code", WIFEXITED(status) ? WEXITSTATUS(status) : -1),
        CT_INT("agent_signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0),
        CT_INT("survivors", left));
    if (left > 0)
        fprintf(
            stderr,
            "ctrun: error[E_UNKILLABLE]: pid %d did not die after SIGKILL (state %c)\n"
            "  now        : giving up on it; do not reuse this node before that "
            "process "
            "has ended\n",
            survivor->pid, survivor->state ? survivor->state : '?');
}

static struct oom_counter oom; /* in the second guard: since the agent's start */

/* No proof: it may have been a worker. */
static void print_oom(void)
{
    char kills[256];

    if (oom_counter_has_oom_killed(&oom, kills, sizeof kills))
        fprintf(stderr, "  likely     : the kernel's OOM killer: %s since the start\n",
                kills);
}

/* Kills processes that the child left behind; `who` is the agent or the second guard. After a
 * clean end there are none: one system call. */
static void sweep(const struct reap_keep *keep, const char *who, int status)
{
    /* the second guard has printed it */
    const bool is_reported = getpid() == first && WIFEXITED(status);
    struct orphans orphans = {0};
    struct reap_process survivor = {0};
    int left;

    if (WIFSIGNALED(status))
        (void)reap_scan(keep, note_process, &orphans);
    left = reap_kill_all(
        keep, WIFEXITED(status) ? GUARD_AFTER_AGENT_MS : AGENT_KILL_WAIT_MS, &survivor);
    if (!is_reported)
        report_end(status, left, &survivor);
    if (WIFSIGNALED(status))
        print_death(who, WTERMSIG(status), left);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        print_oom();
    if (orphans.count > 0)
        fprintf(stderr, "  killed     : %s\n", orphans_text(&orphans));
}

static int handed_over = -1;

void guard_hand_over(int fd)
{
    handed_over = fd;
}

/* From the fork of the child on: returns its exit code when no process of it is left. */
static int guard(pid_t child, const char *who, const struct reap_keep *keep,
                 const sigset_t *set)
{
    int status;

    if (handed_over >= 0)
        close(handed_over);
    status = wait_for(child, keep, set);
    sweep(keep, who, status);
    return WIFEXITED(status) ? WEXITSTATUS(status) : CT_EXIT_SIGNAL + WTERMSIG(status);
}

/* The second guard; returns its own exit code. */
static int guard_agent(int (*agent_main)(void *context), void *context,
                       const sigset_t *set)
{
    const struct reap_keep keep = {0}; /* no process was below us before */
    const pid_t second = getpid();
    struct ctrun_error err;
    pid_t agent;

    fence_join();
    agent = fork(); /* forked first: the agent has more to do than this guard */
    if (agent < 0) {
        fprintf(stderr, "ctrun: error[%s]: %s\n",
                ct_error_name(fork_limit_fail(-errno, &err)), err.text);
        return CT_EXIT_FAILURE;
    }
    if (agent == 0) {
        become_agent(second);
        fence_begin();
        exit(agent_main(context));
    }
    oom_counter_init(&oom, "/proc/self/cgroup", "/sys/fs/cgroup");
    go_below(first, "ctrun-guard");
    return guard(agent, "the agent", &keep, set);
}

pid_t guard_pid(void)
{
    return first > 0 ? first : getppid();
}

/* We are the job that the shell has put into the foreground. A program that has started us may
 * use the terminal meanwhile, and in the background a change of the terminal would stop us. */
static bool is_foreground_job(void)
{
    return tcgetpgrp(STDIN_FILENO) == getpid();
}

int guard_run(int (*agent_main)(void *context), void *context, struct ctrun_error *err)
{
    struct reap_keep keep;
    struct termios mode;
    sigset_t set;
    sigset_t before;
    const bool has_mode = is_foreground_job() && tcgetattr(STDIN_FILENO, &mode) == 0;
    int code;
    pid_t second;

    first = getpid();
    (void)ct_format(
        lost_text, sizeof lost_text,
        "ctrun: error[E_SIGNAL]: the guard (pid %d), ctrun's first process, was killed",
        (int)first);
    reap_note_children(&keep);
    run_cgroup_open();
    fence_create();
    choose_signals(&set);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return ct_fail(err, -errno, "prctl(PR_SET_CHILD_SUBREAPER): %s",
                       strerror(errno));
    (void)sigprocmask(SIG_BLOCK, &set, &before);
    fflush(NULL); /* else each process would print the buffered text */
    second = fork();
    if (second < 0) {
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        return fork_limit_fail(-errno, err);
    }
    if (second == 0)
        _exit(guard_agent(agent_main, context, &set));
    code = guard(second, "the second guard", &keep, &set);
    run_cgroup_close();
    /* A worker that was killed at the prompt of a debugger has left it without echo. */
    if (code != 0 && has_mode && is_foreground_job())
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &mode);
    /* The signals stay blocked: a late signal must not replace the agent's exit code. */
    return code;
}
