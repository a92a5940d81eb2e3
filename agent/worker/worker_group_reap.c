/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that have ended, and what follows: the next step of a stop or of a restart, a failure,
 * the success of all. SIGCHLD and the timers of stop and restart enter here, and this file calls
 * only files below it. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/control/worker_socket.h"
#include "agent/guard/fence.h"
#include "agent/loop/limits.h"
#include "agent/worker/worker_group_private.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/small_file.h"

static struct worker *find_by_pid(const struct worker_group *group, pid_t pid)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].state == WORKER_RUNNING && group->workers[i].pid == pid)
            return &group->workers[i];
    return NULL;
}

static struct worker *find_by_process(const struct worker_group *group, pid_t pid)
{
    const pid_t session = pid > 0 ? getsid(pid) : -1;

    return session > 0 ? find_by_pid(group, session) : NULL;
}

bool worker_group_has_process(const struct worker_group *group, pid_t pid)
{
    return find_by_process(group, pid) != NULL;
}

int worker_group_find_rank(const struct worker_group *group, pid_t pid)
{
    const struct worker *worker = find_by_process(group, pid);

    return worker ? worker->rank : -1;
}

void worker_group_expire(struct worker_group *group, pid_t pid, const char *scope,
                         int signal)
{
    struct worker *worker = find_by_process(group, pid);

    if (worker && group->policy.phase == POLICY_IDLE) /* else it is being stopped */
        worker_expire(worker, scope, signal);
}

static bool is_bad(int status)
{
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* Finds a child that has ended, or a process that a thread of ours has stopped: `first` if it is one. */
static bool find_ended(pid_t first, siginfo_t *info)
{
    info->si_pid = 0;
    if (first > 0 &&
        waitid(P_PID, (id_t)first, info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info->si_pid != 0)
        return true;
    info->si_pid = 0;
    return waitid(P_ALL, 0, info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info->si_pid != 0;
}

/* wait4(), but first reads what the worker has sent: a message may be queued, and its sender can be
 * identified only until the worker is reaped. After a failure the same is done for all workers. */
static pid_t reap_one(struct worker_group *group, pid_t first,
                      struct failure_evidence *death)
{
    siginfo_t info = {0};
    struct rusage usage = {0};
    pid_t pid;

    for (;;) {
        if (!find_ended(first, &info))
            return 0;
        if (info.si_code != CLD_TRAPPED)
            break;
        /* Not ended: a thread of ours has stopped this process to read its stack (agent/native). */
        (void)waitid(P_PID, (id_t)info.si_pid, &info, WSTOPPED | WNOHANG | __WALL);
    }
    worker_socket_catch_up(
        group->options.worker_socket,
        info.si_code == CLD_EXITED && info.si_status == 0 ? info.si_pid : 0);
    if (info.si_status == SIGKILL) /* wait4() includes the children's usage */
        death->cpu_ms = ct_small_file_ticks(info.si_pid) * 1000 /
                        (uint64_t)sysconf(_SC_CLK_TCK);
    pid = wait4(info.si_pid, &death->status, WNOHANG, &usage);
    death->peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
    return pid;
}

/* ---- Error files ------------------------------------------------------------------------ */

/* Looks at all files in one thread, because starting a thread takes longer than finding a file. Workers that run are
 * included: the one that raised first may still run. */
static void look_at_error_files(struct worker_group *group)
{
    struct blocking_file *files = ct_zalloc_array((size_t)group->count, sizeof *files);

    for (int i = 0; files && i < group->count; i++)
        if (group->workers[i].state == WORKER_RUNNING)
            files[i].path = group->workers[i].plan.error_file;
    if (files)
        blocking_call_find_files(files, group->count,
                                 WORKER_LOOK_MS +
                                     (uint64_t)group->count * WORKER_LOOK_EACH_MS);
    for (int i = 0; files && i < group->count; i++)
        group->workers[i].look = files[i];
    group->has_looked = true;
    free(files);
}

/* Forgets what was read: the next pass reads the files again. */
static void forget_looks(struct worker_group *group)
{
    for (int i = 0; i < group->count; i++)
        group->workers[i].look = (struct blocking_file){0};
    group->has_looked = false;
}

/* The first end of a pass reads all files. A worker that ends later may have written its file
 * since: a missing file is looked for once more. */
static void look_before_end(struct worker_group *group, struct worker *worker)
{
    if (group->policy.phase != POLICY_IDLE)
        return; /* the order does not matter any more: each file is read at its worker's end */
    if (!group->has_looked)
        look_at_error_files(group);
    else if (!worker->look.is_there)
        worker->look.path = NULL;
}

/* ---- Ends ------------------------------------------------------------------------------- */

/* Ends the worker, with its own report of a crash. */
static void end_worker(struct worker_group *group, struct worker *worker,
                       struct failure_evidence *death)
{
    char larger[160] = "";

    death->crash_record = -1;
    death->larger = larger;
    worker_socket_refresh(group->options.worker_socket); /* its last step */
    if (is_bad(death->status)) {
        look_before_end(group, worker);
        worker_group_look_for_oom(group);
        death->oom_seen_ms = group->oom_seen_ms;
        death->crash_record = worker_socket_take_crash(
            group->options.worker_socket, worker->rank, group->start.generation,
            worker->pid);
    }
    if (*group->oom_proof)
        worker_group_find_larger(group, death->peak_bytes, larger, sizeof larger);
    worker_end(worker, &group->place, *death);
    if (death->crash_record >= 0)
        close(death->crash_record);
    death->larger = "";
}

const struct ct_failure *worker_group_find_raised(struct worker_group *group,
                                                  uint64_t until_ms)
{
    const struct ct_failure *first = NULL;
    const bool looks = !group->has_looked;

    if (looks)
        look_at_error_files(group);
    for (int i = 0; i < group->count; i++) {
        const struct ct_failure *failure = &group->workers[i].failure;

        if (worker_has_raised(&group->workers[i], &group->place) &&
            !ct_failure_is_victim(failure) &&
            failure->happened_ms <= (first ? first->happened_ms : until_ms))
            first = failure;
    }
    if (looks)
        forget_looks(group);
    return first;
}

/* Workers that end within one look are seen in any order: a worker that lost another rank comes
 * later. */
static bool comes_before(const struct worker *a, const struct worker *b)
{
    if (ct_failure_is_victim(&a->failure) != ct_failure_is_victim(&b->failure))
        return ct_failure_is_victim(&b->failure);
    return a->failure.happened_ms < b->failure.happened_ms;
}

/* `ended` has failed, and nobody continues; a loss that was not decided may have come before it, and
 * another worker may have raised before. */
static void report_first(struct worker_group *group, const struct ct_failure *ended)
{
    const struct ct_failure *loss = worker_group_find_loss(group), *raised;

    if (loss && !ct_failure_is_victim(loss) && loss->happened_ms <= ended->happened_ms)
        ended = loss;
    raised = worker_group_find_raised(group, ended->happened_ms);
    group->options.on_failure(group->options.context, raised ? raised : ended);
}

static void go_on(struct worker_group *group)
{
    group->options.on_fewer(group->options.context);
    if (group->policy.phase == POLICY_IDLE)
        worker_group_replace(group);
}

/* True if perhaps no worker is at work any more: after an end, or, once, after a WORLD. */
static bool is_news(struct worker_group *group, int ended)
{
    const bool has_world = group->has_world;

    group->has_world = false;
    return has_world || ended > 0;
}

void worker_group_reap(struct worker_group *group, pid_t earliest)
{
    struct worker *first = NULL; /* failed in this call */
    struct worker *worker;
    int ended = 0;
    struct failure_evidence death = {.oom_proof = group->oom_proof,
                                     .cgroup = &group->cgroup};
    pid_t pid;

    if (group->policy.phase == POLICY_IDLE && fence_has_cut())
        group->options.on_fenced(group->options.context);
    /* All workers that are dead by now ended by themselves: only after this loop any worker is
     * stopped for it. */
    while ((pid = reap_one(group, earliest, &death)) > 0) {
        earliest = 0;
        if (template_on_end(group->place.template, pid, death.status) ||
            !(worker = find_by_pid(group, pid)))
            continue; /* an orphan of a worker */
        death.seen_ms = ct_now_ms();
        end_worker(group, worker, &death);
        ended++;
        if (worker_has_failed(worker) && (!first || comes_before(worker, first)))
            first = worker;
    }
    if (group->policy.phase != POLICY_IDLE)
        worker_group_continue_stop(group);
    else if (first && (first = worker_group_find_final(group, first)))
        report_first(group, &first->failure);
    else if (worker_group_continue_restarts(group) && is_news(group, ended) &&
             worker_group_is_over(group))
        group->options.on_success(group->options.context);
    else if (group->policy.phase == POLICY_IDLE && group->options.on_fewer)
        go_on(group);
    forget_looks(group);
}

void worker_group_on_timer(void *context)
{
    worker_group_reap(context, 0); /* a SIGCHLD may be on its way, too */
}
