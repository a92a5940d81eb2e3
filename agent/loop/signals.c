/* SPDX-License-Identifier: Apache-2.0 */
/* A handler may run on any thread, between any two instructions: it only writes the signal to a
 * pipe. When the pipe is full a wake-up is under way already; then a SIGCHLD may be dropped,
 * since the wake-up reaps all children.
 *
 * A scheduler that ends a job sends its signal several times. After the end of the loop a signal
 * must not kill the process before it has written its last files and returned its exit code; but
 * a process that hangs at its end must stay killable. So such signals are ignored only for a
 * while. */
#include "agent/loop/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/loop/limits.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"

struct note {
    int signal;
    pid_t sender;
};

struct signals {
    struct loop_watch *watch;
    signals_fn *fn;
    void *context;
    sigset_t caught;
};

static volatile int pipe_write = -1; /* the handler can find it only here */
static volatile uint64_t late_until_ms;
static bool is_held;

pid_t signals_sender(const siginfo_t *info)
{
    if (info->si_code == SI_QUEUE && info->si_pid == getppid())
        return info->si_value.sival_int; /* from the guard */
    if (info->si_code != SI_USER && info->si_code != SI_QUEUE)
        return 0;
    return info->si_pid > 0 ? info->si_pid : SIGNALS_OUTSIDE;
}

static void on_signal(int signal, siginfo_t *info, void *ucontext)
{
    const int saved = errno;
    const struct note note = {.signal = signal,
                              .sender = signal == SIGCHLD ? info->si_pid
                                                          : signals_sender(info)};

    (void)ucontext;
    (void)!write(pipe_write, &note, sizeof note);
    errno = saved;
}

/* The loop is over, and this process is about to end by itself. */
static void on_late_signal(int signal)
{
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    const int saved = errno;

    if (ct_now_ms() >= late_until_ms) {
        (void)sigaction(signal, &by_default, NULL);
        (void)raise(signal); /* acts when this handler returns */
    }
    errno = saved;
}

static void on_readable(void *context, unsigned events)
{
    struct signals *signals = context;
    struct note notes[16];
    ssize_t length = read(loop_watch_fd(signals->watch), notes, sizeof notes);
    signals_fn *fn = signals->fn;
    void *target = signals->context;

    (void)events;
    for (ssize_t i = 0; i < length / (ssize_t)sizeof *notes; i++)
        fn(target, notes[i].signal, notes[i].sender);
}

static void catch_signal(struct signals *signals, int signal)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDSTOP};
    struct sigaction before;

    if (sigismember(&signals->caught, signal) == 1 ||
        sigaction(signal, NULL, &before) < 0)
        return; /* listed twice, or not a signal that can be caught */
    if (before.sa_handler == SIG_IGN && signal != SIGCHLD)
        return;
    action.sa_sigaction = on_signal;
    sigfillset(&action.sa_mask);
    if (sigaction(signal, &action, NULL) == 0)
        sigaddset(&signals->caught, signal);
}

void signals_hold(void)
{
    sigset_t all;

    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
    is_held = true;
}

static void let_through(void)
{
    sigset_t none;

    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    is_held = false;
}

static void ignore_late(const int *list, size_t count)
{
    struct sigaction late = {.sa_handler = on_late_signal, .sa_flags = SA_RESTART};

    sigfillset(&late.sa_mask);
    late_until_ms = ct_deadline_ms(SIGNALS_LATE_MS);
    for (size_t i = 0; i < count; i++)
        (void)sigaction(list[i], &late, NULL);
}

void signals_release(void)
{
    static const int usual[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

    if (!is_held)
        return;
    ignore_late(usual, sizeof usual / sizeof *usual);
    let_through();
}

int signals_open(struct signals **out, struct loop *loop, const int *list, size_t count,
                 signals_fn *fn, void *context)
{
    struct signals *signals = ct_zalloc(sizeof *signals);
    int fds[2];

    if (!signals)
        return -ENOMEM;
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0) {
        free(signals);
        return -errno;
    }
    pipe_write = fds[1];
    signals->fn = fn;
    signals->context = context;
    sigemptyset(&signals->caught);
    signals->watch = loop_watch_open(loop, fds[0], on_readable, signals);
    if (!signals->watch) {
        signals_close(signals);
        return -ENOMEM;
    }
    loop_watch_for(signals->watch, LOOP_READ);
    catch_signal(signals, SIGCHLD);
    for (size_t i = 0; i < count; i++)
        catch_signal(signals, list[i]);
    let_through();
    *out = signals;
    return 0;
}

void signals_close(struct signals *signals)
{
    const struct sigaction by_default = {.sa_handler = SIG_DFL};
    int list[NSIG];
    size_t count = 0;

    if (!signals) {
        signals_release();
        return;
    }
    for (int i = 1; i < NSIG; i++)
        if (i != SIGCHLD && sigismember(&signals->caught, i) == 1)
            list[count++] = i;
    ignore_late(list, count);
    (void)sigaction(SIGCHLD, &by_default, NULL);
    loop_watch_close(signals->watch);
    close(pipe_write);
    pipe_write = -1;
    free(signals);
}
