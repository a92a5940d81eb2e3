/* SPDX-License-Identifier: Apache-2.0 */
/* Each child has a slot of its own: its request, and the stack that it runs on. It shares our
 * memory (child.h), so run_child() and what it calls keep to raw.h and to that slot. Failures
 * are reported through a pipe that all children hold open until execve() closes it: at the end
 * of the pipe no child uses the slots any more. */
#include "agent/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/process/run_cgroup.h"
#include "agent/process/child.h"
#include "agent/process/descriptors.h"
#include "agent/process/fork_limit.h"
#include "agent/process/raw.h"
#include "agent/process/template_fork.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/env.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"
#include "worker_sdk/base/kernel.h"

enum {
    /* A path, the dynamic linker's copy of all vector registers, and a reserve; a child touches
     * one to three pages of it. */
    STACK_BYTES = 32 * 1024,
    KERNEL_SIGNALS_BYTES = 8 /* bytes of its signal sets, which differ from glibc's */
};

/* Report of a child that failed before its program started. */
struct report {
    int number;
    int rc;
    bool is_bind; /* setting its CPUs failed, not execve() */
};

struct spawn_slot {
    _Alignas(16) char stack[STACK_BYTES];
    struct spawn_request request;
    const char *path; /* value of PATH */
    pid_t parent;
    pid_t pid;
    bool is_forked;         /* the template makes it; its streams are copies of ours */
    bool enters_run_cgroup; /* it was not born in the cgroup */
    const struct rlimit *files; /* the user's own limit, where ours differs; or NULL */
    int report_out;
    struct report report;
};

/* ---- In the child ----------------------------------------------------------------------- */

/* Puts fd at `place` without the close-on-exec flag. */
static int place_fd(int fd, int place)
{
    if (fd < 0 || fd == place)
        return 0;
    return (int)raw_call(SYS_dup3, fd, place, 0, 0);
}

/* Resets SIGPIPE and SIGXFSZ, which the agent ignores: a child that ignored them would not be
 * ended when its reader is gone or its file is too large. */
static void reset_ignored(void)
{
    static const char by_default[64]; /* room for the kernel's struct sigaction */

    (void)raw_call(SYS_rt_sigaction, SIGPIPE, raw_pointer(by_default), 0,
                   KERNEL_SIGNALS_BYTES);
    (void)raw_call(SYS_rt_sigaction, SIGXFSZ, raw_pointer(by_default), 0,
                   KERNEL_SIGNALS_BYTES);
}

/* Returns only on failure, with an errno. */
static int exec_path(const struct spawn_request *request, const char *path)
{
    return (int)-raw_call(SYS_execve, raw_pointer(path), raw_pointer(request->argv),
                          raw_pointer(request->env), 0);
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
    return exec_path(request, path);
}

/* Returns the errno of the most informative failure, as execvp() does: a file that exists but
 * must not be run counts more than a missing one. */
static int exec_program(const struct spawn_slot *slot)
{
    const char *at = slot->path;
    const char *end;
    int denied = 0;
    int rc;

    if (strchr(slot->request.argv[0], '/'))
        return exec_path(&slot->request, slot->request.argv[0]);
    for (;; at = end + 1) {
        end = strchrnul(at, ':');
        rc = exec_in(&slot->request, at, (size_t)(end - at));
        if (rc == EACCES)
            denied = EACCES;
        else if (rc != ENOENT && rc != ENOTDIR && rc != ENAMETOOLONG)
            return rc;
        if (*end == '\0')
            return denied ? denied : ENOENT;
    }
}

static _Noreturn void leave(int code)
{
    for (;;)
        (void)raw_call(SYS_exit_group, code, 0, 0, 0);
}

static _Noreturn void run_child(void *context)
{
    const struct spawn_slot *slot = context;
    struct report report = slot->report;
    static const uint64_t none; /* what the kernel takes for a sigset_t */

    (void)raw_call(SYS_rt_sigprocmask, SIG_SETMASK, raw_pointer(&none), 0, sizeof none);
    (void)raw_call(SYS_setsid, 0, 0, 0, 0); /* cannot fail: we lead no group yet */
    (void)raw_call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0);
    if (raw_call(SYS_getppid, 0, 0, 0, 0) != slot->parent)
        leave(CT_EXIT_SIGNAL + SIGKILL); /* it died before prctl */
    if (slot->enters_run_cgroup)
        run_cgroup_enter();
    if ((report.rc = place_fd(slot->request.in, STDIN_FILENO)) >= 0)
        report.rc = place_fd(slot->request.out, STDOUT_FILENO);
    if (report.rc >= 0)
        report.rc = place_fd(slot->request.err, STDERR_FILENO);
    if (slot->files) /* lowers it, or leaves it as it is: cannot fail */
        (void)raw_call(SYS_prlimit64, 0, RLIMIT_NOFILE, raw_pointer(slot->files), 0);
    if (report.rc >= 0 && slot->request.bind) {
        report.rc = bind_apply(slot->request.bind);
        report.is_bind = report.rc < 0;
    }
    if (report.rc >= 0) {
        /* Close descriptors that our own parent left open; an old kernel without the call keeps
         * them open. */
        (void)raw_call(CT_SYS_close_range, STDERR_FILENO + 1, UINT_MAX,
                       CT_CLOSE_RANGE_CLOEXEC, 0);
        if (slot->request.extra > 0) /* close-on-exec is the only descriptor flag */
            (void)raw_call(SYS_fcntl, slot->request.extra, F_SETFD, 0, 0);
        reset_ignored();
        report.rc = -exec_program(slot);
    }
    /* If the pipe is full, spawn_wait() makes room. */
    (void)raw_call(SYS_write, slot->report_out, raw_pointer(&report), sizeof report, 0);
    leave(CT_EXIT_NOT_FOUND);
}

/* ---- In the parent ---------------------------------------------------------------------- */

static const char *find_path(char *const *env)
{
    const char *path = ct_env_find(env, "PATH");

    return path ? path : CT_ENV_NO_PATH;
}

static int open_batch(struct spawn_batch *batch)
{
    void *memory;
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    memory = mmap(NULL, (size_t)batch->max * sizeof *batch->slots,
                  PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) {
        const int rc = -errno;

        close(fds[0]);
        close(fds[1]);
        return rc;
    }
    batch->slots = memory;
    batch->report_in = fds[0];
    batch->report_out = fds[1];
    return 0;
}

static pid_t start_child(struct spawn_slot *slot)
{
    const int run_cgroup = run_cgroup_directory();
    pid_t pid = -ENOENT;

    if (run_cgroup >= 0)
        pid = child_start(run_child, slot, slot->stack, sizeof slot->stack, run_cgroup);
    if (pid >= 0)
        return pid;
    slot->enters_run_cgroup = true;
    return child_start(run_child, slot, slot->stack, sizeof slot->stack, -1);
}

/* The template gets copies that live until spawn_wait(): the caller closes its own before that. */
static int copy_streams(struct spawn_request *request)
{
    int *const fds[] = {&request->in, &request->out, &request->err};

    for (int i = 0; i < 3; i++) {
        const int fd = *fds[i] > 0 ? *fds[i] : i;
        const int copy = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

        if (copy < 0) {
            const int rc = -errno;

            while (i-- > 0)
                close(*fds[i]);
            return rc;
        }
        *fds[i] = copy;
    }
    return 0;
}

static int fail_fork(const char *program, int rc, struct ctrun_error *err)
{
    (void)fork_limit_fail(rc, err);
    ct_wrap(err, "%s", program);
    return rc;
}

int spawn_start(struct spawn *spawn, struct spawn_batch *batch,
                const struct spawn_request *request, struct ctrun_error *err)
{
    const char *program = request->argv[0];
    struct spawn_slot *slot;
    int rc;

    if (!batch->slots && (rc = open_batch(batch)) < 0)
        return ct_fail(err, rc, "%s: pipe: %s", program, strerror(-rc));
    slot = &batch->slots[batch->count];
    slot->request = *request; /* all other fields are 0 */
    slot->path = find_path(request->env);
    slot->parent = getpid();
    slot->report_out = batch->report_out;
    slot->files = descriptors_users_limit();
    slot->report.number = batch->count;
    slot->is_forked = batch->template > 0 && request->may_fork && request->extra <= 0;
    slot->pid = slot->is_forked ? 0 : start_child(slot);
    if (slot->pid < 0)
        return fail_fork(program, slot->pid, err);
    if (slot->is_forked && (rc = copy_streams(&slot->request)) < 0)
        return ct_fail(err, rc, "%s: %s", program, strerror(-rc));
    *spawn = (struct spawn){slot->pid, batch->count++};
    return 0;
}

/* All of them, or none. */
static int fork_all(struct spawn_batch *batch, struct ctrun_error *err)
{
    struct template_worker *workers = ct_zalloc_array((size_t)batch->count,
                                                      sizeof *workers);
    int count = 0;
    int rc;

    if (!workers)
        return ct_fail(err, -ENOMEM, "out of memory");
    for (int i = 0; i < batch->count; i++) {
        const struct spawn_request *request = &batch->slots[i].request;

        if (batch->slots[i].is_forked)
            workers[count++] = (struct template_worker){
                .argv = request->argv,
                .env = request->env,
                .fds = {request->in, request->out, request->err},
                .bind = request->bind,
            };
    }
    rc = template_fork(
        batch->template, workers, count,
        template_fork_limit_ms(count, (uint64_t)ct_left_ms(batch->silent_until_ms)),
        err);
    for (int i = 0, at = 0; i < batch->count; i++)
        if (batch->slots[i].is_forked)
            batch->slots[i].pid = workers[at++].pid;
    free(workers);
    return rc;
}

/* Starts those that the template can become; by exec if the template cannot. */
static void start_forked(struct spawn_batch *batch)
{
    struct ctrun_error err = {0};

    if ((batch->rc = fork_all(batch, &err)) < 0)
        (void)ct_format(batch->why, sizeof batch->why, "%s", err.text);
    for (int i = 0; i < batch->count; i++) {
        struct spawn_slot *slot = &batch->slots[i];

        if (!slot->is_forked)
            continue;
        if (*batch->why) {
            slot->is_forked = false;
            slot->pid = start_child(slot);
            slot->report.rc = slot->pid < 0 ? slot->pid : 0;
        }
        close(slot->request.in);
        close(slot->request.out);
        close(slot->request.err);
    }
}

void spawn_wait(struct spawn_batch *batch)
{
    struct spawn_slot *slot;
    struct report report;
    ssize_t n;

    if (!batch->slots)
        return;
    if (batch->template > 0)
        start_forked(batch);
    close(batch->report_out);
    while ((n = read(batch->report_in, &report, sizeof report)) != 0) {
        if (n != (ssize_t)sizeof report)
            continue; /* interrupted by a signal */
        slot = &batch->slots[report.number];
        slot->report = report;
        while (waitpid(slot->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(batch->report_in);
}

int spawn_check(const struct spawn *spawn, const struct spawn_batch *batch,
                struct ctrun_error *err)
{
    const struct spawn_slot *slot = &batch->slots[spawn->number];

    if (slot->report.rc >= 0)
        return 0; /* it runs, or was killed before execve(): SIGCHLD reports that */
    if (slot->pid < 0)
        return fail_fork(slot->request.argv[0], slot->pid, err);
    return ct_fail(err, slot->report.rc, "%s: %s%s", slot->request.argv[0],
                   slot->report.is_bind ? "bind to CPUs: " : "",
                   strerror(-slot->report.rc));
}

pid_t spawn_pid(const struct spawn *spawn, const struct spawn_batch *batch)
{
    return batch->slots[spawn->number].pid;
}

bool spawn_is_forked(const struct spawn *spawn, const struct spawn_batch *batch)
{
    return batch->slots[spawn->number].is_forked;
}

void spawn_end(struct spawn_batch *batch)
{
    if (batch->slots)
        (void)munmap(batch->slots, (size_t)batch->max * sizeof *batch->slots);
    batch->slots = NULL;
}
