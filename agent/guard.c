/* SPDX-License-Identifier: Apache-2.0 */
/* The guard sleeps in sigwaitinfo(): no descriptor, no thread. It wakes for a signal to pass on,
 * for a stranger's orphan to bury (as pid 1 of a container it gets all of them), for the end of
 * the agent, or, in a run of several nodes, when the agent's lease should have been renewed.
 *
 * The agent gets GUARD_LOST when the guard ends; its handler kills whatever is below the agent
 * and leaves. That works in any state of the agent's code, since it needs no loop.
 *
 * Guard and agent killed in the same instant: workers die even then (PDEATHSIG); what they
 * double-forked has no subreaper left, and ends when the next ctrun finds its cgroup (cage.h).
 * The agent is in a session of its own, so that killing the guard's process group, or a terminal
 * that goes away, hits the guard alone. */
#include "agent/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cage.h"
#include "agent/fence.h"
#include "agent/leftovers.h"
#include "agent/limits.h"
#include "agent/reap.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/wire/contract.h"

/* A real-time signal of our own: its default ends an agent that has no handler yet. */
#define GUARD_LOST (SIGRTMAX - 3)

enum {
    GUARD_AFTER_AGENT_MS = 2000, /* the agent had its time before it left by itself */
    FENCE_PASSES = 8, /* what forks while it is looked for is found by the next look */
};

/* Faults of our own code, and job control: Ctrl-Z stops the guard's terminal job, not the
 * training. */
static const int not_forwarded[] = {SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,
                                    SIGTRAP, SIGABRT, SIGSYS,  SIGTSTP,
                                    SIGTTIN, SIGTTOU, SIGCONT, SIGPIPE};

/* What the guard waits for: everything else that is not ignored (nohup). */
static void choose_signals(sigset_t *set)
{
    struct sigaction action = {.sa_handler = SIG_DFL};

    (void)sigaction(SIGCHLD, &action, NULL); /* ignored, it would eat exit codes */
    sigfillset(set);
    for (size_t i = 0; i < sizeof not_forwarded / sizeof *not_forwarded; i++)
        sigdelset(set, not_forwarded[i]);
    for (int i = 1; i < NSIG; i++)
        if (sigaction(i, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
            sigdelset(set, i);
}

/* In the agent: the guard is gone. Async-signal-safe all the way down. */
static void on_guard_lost(int signal)
{
    struct reap_process survivor;

    (void)signal;
    (void)reap_kill_all(NULL, AGENT_KILL_WAIT_MS, &survivor);
    _exit(CT_EXIT_SIGNAL + SIGKILL);
}

static void become_agent(pid_t guard, const sigset_t *mask)
{
    struct sigaction action = {.sa_handler = on_guard_lost};

    sigfillset(&action.sa_mask);
    (void)sigaction(GUARD_LOST, &action, NULL);
    (void)prctl(PR_SET_PDEATHSIG, GUARD_LOST);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)prctl(PR_SET_NAME, "ctrun-agent");
    (void)setsid();
    if (getppid() != guard)
        _exit(CT_EXIT_SIGNAL + SIGKILL); /* it died before prctl */
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
}

static void forward(pid_t agent, const siginfo_t *info)
{
    union sigval sender = {0};

    if (info->si_signo == GUARD_LOST)
        return;
    if (info->si_code == SI_USER || info->si_code == SI_QUEUE)
        sender.sival_int = info->si_pid;
    (void)sigqueue(agent, info->si_signo, sender); /* gone meanwhile: fine */
}

/* Buries what has ended. True when the agent was among it. */
static bool reap_ended(pid_t agent, int *status)
{
    bool is_agent_gone = false;
    pid_t pid;
    int ended;

    while ((pid = waitpid(-1, &ended, WNOHANG)) > 0) {
        if (pid != agent)
            continue;
        *status = ended;
        is_agent_gone = true;
    }
    return is_agent_gone;
}

struct spare {
    pid_t agent;
    int killed;
};

static void kill_others(void *context, const struct reap_process *process)
{
    struct spare *spare = context;

    if (process->pid == spare->agent)
        return;
    spare->killed++;
    (void)kill(process->pid, SIGKILL);
}

/* The agent is silent, and what it has started must not outlive the lease. It can start nothing
 * meanwhile; should it have woken up just now, its own fence does the rest. */
static void kill_workers(pid_t agent, const struct reap_keep *keep)
{
    struct spare spare = {.agent = agent, .killed = 1};
    struct ct_event event;

    for (int i = 0; i < FENCE_PASSES && spare.killed > 0; i++) {
        spare.killed = 0;
        (void)reap_scan(keep, kill_others, &spare);
    }
    ct_event_begin(&event, "guard_fenced");
    ct_event_int(&event, "agent_pid", agent);
    ct_event_end(&event);
    fprintf(stderr,
            "ctrun: the agent (pid %d) is stopped or hangs, and the rendezvous cannot "
            "be heard: its workers were killed\n",
            (int)agent);
}

/* The next signal; 0 when the fence has to be looked at. */
static int wait_for_signal(const sigset_t *set, siginfo_t *info)
{
    const uint64_t next_ms = fence_next_ms();
    const int left_ms = ct_left_ms(next_ms);
    const struct timespec left = {.tv_sec = left_ms / 1000,
                                  .tv_nsec = left_ms % 1000 * 1000000L};
    int rc;

    do
        rc = next_ms == UINT64_MAX ? sigwaitinfo(set, info)
                                   : sigtimedwait(set, info, &left);
    while (rc < 0 && errno == EINTR && next_ms == UINT64_MAX); /* stopped, continued */
    return rc < 0 ? 0 : rc;
}

static int wait_for_agent(pid_t agent, const struct reap_keep *keep,
                          const sigset_t *set)
{
    siginfo_t info;
    int status = 0;

    for (;;) {
        if (wait_for_signal(set, &info) == 0) {
            if (fence_is_over(agent))
                kill_workers(agent, keep);
            continue;
        }
        if (info.si_signo != SIGCHLD)
            forward(agent, &info);
        else if (reap_ended(agent, &status))
            return status;
    }
}

static void note_process(void *context, const struct reap_process *process)
{
    leftovers_note(context, process->pid);
}

/* Kills what the agent left. A clean agent left nothing: one system call. */
static void sweep(const struct reap_keep *keep, int status)
{
    struct leftovers leftovers = {0};
    struct reap_process survivor = {0};
    struct ct_event event;
    int left;

    if (WIFSIGNALED(status))
        (void)reap_scan(keep, note_process, &leftovers);
    left = reap_kill_all(
        keep, WIFEXITED(status) ? GUARD_AFTER_AGENT_MS : AGENT_KILL_WAIT_MS, &survivor);
    ct_event_begin(&event, "guard_ended");
    ct_event_int(&event, "agent_exit_code",
                 WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    ct_event_int(&event, "agent_signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    ct_event_int(&event, "survivors", left);
    ct_event_end(&event);
    if (left > 0)
        fprintf(
            stderr,
            "ctrun: error[E_UNKILLABLE]: pid %d did not die after SIGKILL (state %c)\n"
            "  now        : giving up on it; do not reuse this node before it is "
            "gone\n",
            survivor.pid, survivor.state ? survivor.state : '?');
    if (WIFSIGNALED(status))
        fprintf(stderr,
                "ctrun: error[E_SIGNAL]: the agent died of SIG%s (%d); its workers "
                "were killed\n",
                sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status)) : "?",
                WTERMSIG(status));
    if (leftovers.count > 0)
        fprintf(stderr, "  killed     : %s\n", leftovers_text(&leftovers));
}

int guard_run(int (*agent_main)(void *context), void *context, struct ctrun_error *err)
{
    const pid_t guard = getpid();
    struct reap_keep keep;
    sigset_t set;
    sigset_t before;
    int status;
    pid_t agent;

    reap_note_children(&keep);
    cage_open("/proc/self/mounts", "/proc/self/cgroup");
    fence_create();
    choose_signals(&set);
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return ct_fail(err, -errno, "prctl(PR_SET_CHILD_SUBREAPER): %s",
                       strerror(errno));
    (void)sigprocmask(SIG_BLOCK, &set, &before);
    fflush(NULL); /* or both would print what is still in the buffers */
    agent = fork();
    if (agent < 0) {
        (void)sigprocmask(SIG_SETMASK, &before, NULL);
        return ct_fail(err, -errno, "fork: %s", strerror(errno));
    }
    if (agent == 0) {
        become_agent(guard, &before);
        exit(agent_main(context));
    }
    status = wait_for_agent(agent, &keep, &set);
    sweep(&keep, status);
    cage_close();
    /* The signals stay blocked: one that comes now must not take the agent's exit code. */
    return WIFEXITED(status) ? WEXITSTATUS(status) : CT_EXIT_SIGNAL + WTERMSIG(status);
}
