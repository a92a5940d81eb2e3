/* SPDX-License-Identifier: Apache-2.0 */
/* fork() and not vfork(): its caller sleeps until execve(), so that on a busy machine the workers
 * of a node would queue up for a processor one after the other; these start side by side. The
 * child calls nothing but async-signal-safe functions, since our other thread may have held any
 * lock. All signals are blocked until no handler of ours can run in it. What fails comes back
 * as errno through a pipe that execve() closes. */
#include "agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cage.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static const char default_path[] = "/usr/local/bin:/usr/bin:/bin";

/* What a child tells that did not get as far as its program. */
struct report {
    int rc;
    bool is_bind; /* its CPUs were refused, not its program */
};

struct child {
    const struct spawn_request *request;
    const char *path; /* value of PATH */
    sigset_t mask;    /* of the program */
    pid_t parent;
    int report; /* write end of the pipe */
};

static const char *find_path(char *const *env)
{
    for (; *env; env++)
        if (ct_starts_with(*env, "PATH="))
            return *env + strlen("PATH=");
    return default_path;
}

/* Handlers become SIG_DFL by execve(), but not before the mask is lifted. */
static void reset_signals(const sigset_t *mask)
{
    struct sigaction action;

    for (int i = 1; i < NSIG; i++) {
        if (sigaction(i, NULL, &action) < 0 || action.sa_handler == SIG_DFL)
            continue;
        if (action.sa_handler == SIG_IGN && i != SIGPIPE)
            continue; /* nohup's SIGHUP stays ignored in the workers */
        memset(&action, 0, sizeof action);
        action.sa_handler = SIG_DFL;
        (void)sigaction(i, &action, NULL);
    }
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
}

/* Puts fd at `place` without the close-on-exec flag. */
static int place_fd(int fd, int place)
{
    if (fd < 0)
        return 0;
    return dup2(fd, place) < 0 ? -errno : 0;
}

/* execve() of argv[0] in `directory`; length 0 is the current one. */
static int exec_in(const struct spawn_request *request, const char *directory,
                   size_t length)
{
    const char *name = request->argv[0];
    char path[PATH_MAX];
    size_t name_length = strlen(name);

    if (length + name_length + 2 > sizeof path)
        return ENAMETOOLONG;
    memcpy(path, directory, length);
    if (length > 0)
        path[length++] = '/';
    memcpy(path + length, name, name_length + 1);
    execve(path, request->argv, request->env);
    return errno;
}

/* Returns the errno of the most telling failure, as execvp() does: a file that is there but
 * must not be run counts more than one that is not there. */
static int exec_program(const struct child *child)
{
    const char *at = child->path;
    const char *end;
    int denied = 0;
    int rc;

    if (strchr(child->request->argv[0], '/')) {
        execve(child->request->argv[0], child->request->argv, child->request->env);
        return errno;
    }
    for (;; at = end + 1) {
        end = strchrnul(at, ':');
        rc = exec_in(child->request, at, (size_t)(end - at));
        if (rc == EACCES)
            denied = EACCES;
        else if (rc != ENOENT && rc != ENOTDIR && rc != ENAMETOOLONG)
            return rc;
        if (*end == '\0')
            return denied ? denied : ENOENT;
    }
}

static _Noreturn void run_child(const struct child *child)
{
    struct report report = {0};

    (void)setsid(); /* cannot fail: we lead no group yet */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != child->parent)
        _exit(CT_EXIT_SIGNAL + SIGKILL); /* it died before prctl */
    if ((report.rc = place_fd(child->request->out, STDOUT_FILENO)) == 0)
        report.rc = place_fd(child->request->err, STDERR_FILENO);
    if (report.rc == 0 && child->request->bind) {
        report.rc = bind_apply(child->request->bind);
        report.is_bind = report.rc < 0;
    }
    if (report.rc == 0) {
        /* Descriptors that our own parent left open; an old kernel keeps them. */
        (void)syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
        reset_signals(&child->mask);
        report.rc = -exec_program(child);
    }
    (void)!write(child->report, &report,
                 sizeof report); /* it always fits into a pipe */
    _exit(CT_EXIT_NOT_FOUND);
}

static pid_t fork_child(struct child *child)
{
    sigset_t all;
    pid_t pid;

    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &child->mask);
    pid = cage_fork();
    if (pid == 0)
        run_child(child);
    if (pid < 0)
        pid = -errno;
    (void)pthread_sigmask(SIG_SETMASK, &child->mask, NULL);
    return pid;
}

int spawn_start(struct spawn *spawn, const struct spawn_request *request,
                struct ctrun_error *err)
{
    struct child child = {.request = request, .path = find_path(request->env)};
    const char *program = request->argv[0];
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return ct_fail(err, -errno, "%s: pipe: %s", program, strerror(errno));
    child.parent = getpid();
    child.report = fds[1];
    spawn->pid = fork_child(&child);
    close(fds[1]);
    if (spawn->pid < 0) {
        close(fds[0]);
        return ct_fail(err, spawn->pid, "%s: fork: %s", program, strerror(-spawn->pid));
    }
    spawn->report = fds[0];
    return 0;
}

int spawn_wait(struct spawn *spawn, const char *program, struct ctrun_error *err)
{
    struct report report;
    ssize_t n;

    while ((n = read(spawn->report, &report, sizeof report)) < 0 && errno == EINTR)
        ;
    close(spawn->report);
    if (n != (ssize_t)sizeof report)
        return 0; /* closed by execve(), or it was killed on the way: SIGCHLD tells */
    while (waitpid(spawn->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    return ct_fail(err, report.rc, "%s: %s%s", program,
                   report.is_bind ? "bind to CPUs: " : "", strerror(-report.rc));
}
