/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/control.h"
#include "agent/crew_private.h"
#include "agent/fence.h"
#include "agent/pmi.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/wire/contract.h"

int crew_create(struct crew **out, const struct crew_options *options)
{
    struct crew *crew = ct_zalloc(sizeof *crew);

    if (!crew)
        return -ENOMEM;
    crew->options = *options;
    crew->count = (int)options->agent->join.slots;
    crew->workers = ct_zalloc_array((size_t)crew->count, sizeof *crew->workers);
    crew->timer = loop_timer_open(options->loop, crew_on_stop_timer, crew);
    crew->memory_timer = loop_timer_open(options->loop, crew_on_memory, crew);
    crew->restart_timer = loop_timer_open(options->loop, crew_on_remains, crew);
    if (logfile_writer_create(&crew->files, options->loop) < 0)
        crew->files = NULL;
    crew->place = (struct worker_place){
        .options = options->agent,
        .start = &crew->start,
        .socket = options->socket,
        .loop = options->loop,
        .files = crew->files,
        .console_out = options->console_out,
        .console_err = options->console_err,
        .chorus_out = options->chorus_out,
        .chorus_err = options->chorus_err,
    };
    if (!crew->workers || !crew->timer || !crew->memory_timer || !crew->restart_timer ||
        !crew->files) {
        crew_destroy(crew);
        return -ENOMEM;
    }
    cgroup_init(&crew->cgroup, "/proc/self/cgroup", "/sys/fs/cgroup");
    *out = crew;
    return 0;
}

static void clear(struct crew *crew)
{
    for (int i = 0; crew->workers && i < crew->count; i++)
        worker_deinit(&crew->workers[i]);
    pmi_close(crew->place.pmi);
    crew->place.pmi = NULL;
    loop_timer_stop(crew->restart_timer);
    memset(&crew->policy, 0, sizeof crew->policy);
    memset(&crew->leftovers, 0, sizeof crew->leftovers);
}

void crew_destroy(struct crew *crew)
{
    if (!crew)
        return;
    clear(crew);
    logfile_writer_destroy(crew->files); /* waits for what is not written yet */
    free(crew->workers);
    loop_timer_close(crew->timer);
    loop_timer_close(crew->memory_timer);
    loop_timer_close(crew->restart_timer);
    free(crew);
}

void crew_reset(struct crew *crew, const struct ct_start *start)
{
    clear(crew);
    crew->start = *start;
}

/* MPI_Abort(): as if it had exited with the code. */
static void on_abort(void *context, int rank, int code)
{
    struct crew *crew = context;

    if (crew->workers[rank].state == WORKER_RUNNING)
        worker_abort(&crew->workers[rank], code);
}

/* Side by side. The first that failed; -1: all of them run. */
static int start_all(struct crew *crew)
{
    struct spawn_batch batch = {.max = crew->count};
    int failed = -1;
    int rc;

    if (crew->options.agent->serves_pmi &&
        (rc = pmi_open(&crew->place.pmi, crew->options.loop, crew->count, on_abort,
                       crew)) < 0)
        ct_warn("PMI: %s", strerror(-rc)); /* the first worker fails of it */
    crew->place.batch = &batch;
    for (int i = 0; i < crew->count && failed < 0; i++)
        if (worker_plan(&crew->workers[i], &crew->place, i) < 0 ||
            worker_start(&crew->workers[i], &crew->place) < 0)
            failed = i;
    spawn_wait(&batch);
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RUNNING &&
            worker_confirm(&crew->workers[i], &crew->place) < 0 && failed < 0)
            failed = i;
    spawn_end(&batch);
    crew->place.batch = NULL;
    return failed;
}

void crew_start(struct crew *crew, const struct ct_start *start)
{
    char proof[sizeof crew->oom_proof];
    int failed;

    crew_reset(crew, start);
    crew->oom_proof[0] = '\0';
    (void)cgroup_has_oom_killed(&crew->cgroup, proof,
                                sizeof proof); /* counts from here */
    loop_timer_set(crew->memory_timer, MEMORY_FIRST_MS);
    failed = start_all(crew);
    if (failed >= 0)
        crew->options.on_failure(crew->options.context, &crew->workers[failed].failure);
}

void crew_signal(struct crew *crew, int signal)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RUNNING)
            (void)kill(crew->workers[i].pid, signal);
}

int crew_signal_rank(struct crew *crew, int rank, int signal)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RUNNING && crew->workers[i].rank == rank)
            return kill(crew->workers[i].pid, signal) < 0 ? -errno : 0;
    return -ESRCH;
}

/* ---- Ends ------------------------------------------------------------------------------- */

static struct worker *find_by_pid(const struct crew *crew, pid_t pid)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RUNNING && crew->workers[i].pid == pid)
            return &crew->workers[i];
    return NULL;
}

static struct worker *find_by_process(const struct crew *crew, pid_t pid)
{
    const pid_t session = pid > 0 ? getsid(pid) : -1;

    return session > 0 ? find_by_pid(crew, session) : NULL;
}

bool crew_has_process(const struct crew *crew, pid_t pid)
{
    return find_by_process(crew, pid) != NULL;
}

int crew_find_rank(const struct crew *crew, pid_t pid)
{
    const struct worker *worker = find_by_process(crew, pid);

    return worker ? worker->rank : -1;
}

void crew_expire(struct crew *crew, pid_t pid, const char *scope, int signal)
{
    struct worker *worker = find_by_process(crew, pid);

    if (worker && crew->policy.phase == POLICY_IDLE) /* else it is being stopped */
        worker_expire(worker, scope, signal);
}

/* A count that has grown proves it for all that are killed in this round. */
static void look_for_oom(struct crew *crew)
{
    char proof[sizeof crew->oom_proof];

    if (cgroup_has_oom_killed(&crew->cgroup, proof, sizeof proof))
        memcpy(crew->oom_proof, proof, sizeof proof);
}

static bool is_bad(int status)
{
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* wait4(), but who died of a signal is heard before: what it told of a crash may be on its way
 * to us, and who it is can be seen as long as it is not reaped. */
static pid_t reap_one(struct crew *crew, int *status, struct rusage *usage)
{
    siginfo_t info = {0};

    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
        return 0;
    if (info.si_code != CLD_EXITED || info.si_status > CT_EXIT_SIGNAL)
        control_catch_up(crew->options.control);
    return wait4(info.si_pid, status, WNOHANG, usage);
}

/* With what it told of a crash. */
static void end_worker(struct crew *crew, struct worker *worker, struct evidence *death)
{
    char larger[160] = "";

    death->crash_record = -1;
    death->larger = larger;
    if (is_bad(death->status)) {
        look_for_oom(crew);
        death->crash_record = control_take_crash(crew->options.control, worker->rank,
                                                 crew->start.generation, worker->pid);
    }
    if (death->status == 0 && worker->stop_signal == 0 && crew->place.pmi &&
        pmi_is_missed(crew->place.pmi, worker->local_rank))
        ct_warn("PMI: rank %d ended without MPI_Finalize: others may wait for it",
                worker->rank);
    if (*crew->oom_proof)
        crew_find_larger(crew, death->peak_bytes, larger, sizeof larger);
    worker_end(worker, &crew->place, *death);
    if (death->crash_record >= 0)
        close(death->crash_record);
    death->larger = "";
}

void crew_reap(struct crew *crew)
{
    struct worker *first = NULL; /* failed in this call */
    struct worker *worker;
    int ended = 0;
    struct evidence death = {.oom_proof = crew->oom_proof, .cgroup = &crew->cgroup};
    struct rusage usage;
    pid_t pid;

    if (crew->policy.phase == POLICY_IDLE && fence_has_cut())
        crew->options.on_fenced(crew->options.context);
    /* All that are dead by now ended by themselves: only then is anybody stopped for it. */
    while ((pid = reap_one(crew, &death.status, &usage)) > 0) {
        if (!(worker = find_by_pid(crew, pid)))
            continue; /* an orphan of a worker */
        death.seen_ms = ct_now_ms();
        death.peak_bytes = (uint64_t)usage.ru_maxrss * 1024;
        end_worker(crew, worker, &death);
        ended++;
        if (!first && worker_has_failed(worker))
            first = worker;
    }
    if (crew->policy.phase != POLICY_IDLE)
        crew_continue_stop(crew);
    else if (first && (first = crew_find_final(crew, first)))
        crew->options.on_failure(crew->options.context, &first->failure);
    else if (crew_continue_restarts(crew) && ended > 0 && !crew_is_at_work(crew))
        crew->options.on_success(crew->options.context);
}

/* ---- Facts ------------------------------------------------------------------------------ */

void crew_set_step(struct crew *crew, int rank, uint64_t generation, int64_t step)
{
    const int64_t local = (int64_t)rank - (int64_t)crew->start.rank_base;

    if (generation != crew->start.generation || local < 0 || local >= crew->count)
        return;
    crew->workers[local].step = step;
    crew->workers[local].stepped_ms = ct_now_ms();
}

int64_t crew_min_step(const struct crew *crew)
{
    int64_t min = INT64_MAX;

    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].step < min)
            min = crew->workers[i].state == WORKER_NEW ? -1 : crew->workers[i].step;
    return min == INT64_MAX ? -1 : min;
}

int crew_count(const struct crew *crew)
{
    return crew->count;
}

const struct worker *crew_worker(const struct crew *crew, int local_rank)
{
    return &crew->workers[local_rank];
}

static int copy_failures(const struct crew *crew, bool want_own, struct ct_failure *out,
                         int max)
{
    int count = 0;

    for (int i = 0; i < crew->count && count < max; i++) {
        const struct worker *worker = &crew->workers[i];

        if (worker->state == WORKER_ENDED && worker->failure.cause != CT_CAUSE_NONE &&
            worker_has_failed(worker) == want_own)
            out[count++] = worker->failure;
    }
    return count;
}

/* Those that had ended with 0 before anybody asked them to. */
static int copy_early(const struct crew *crew, struct ct_failure *out, int max)
{
    int count = 0;

    for (int i = 0; i < crew->count && count < max; i++) {
        const struct worker *worker = &crew->workers[i];

        if (worker->state != WORKER_ENDED || worker->failure.cause != CT_CAUSE_NONE ||
            worker->stop_signal)
            continue;
        out[count] = worker->failure;
        out[count++].cause = CT_CAUSE_EARLY;
    }
    return count;
}

void crew_set_age(struct ct_failure *failure)
{
    const uint64_t now_ms = ct_now_ms();

    if (failure->happened_ms != 0)
        failure->age_ms = now_ms > failure->happened_ms ? now_ms - failure->happened_ms
                                                        : 1; /* 0: not known */
}

int crew_get_failures(const struct crew *crew, struct ct_failure *out, int max)
{
    int count = copy_failures(crew, true, out, max);

    for (int i = 0; i < count; i++)
        crew_set_age(&out[i]);
    count += copy_early(crew, out + count, max - count);
    return count + copy_failures(crew, false, out + count, max - count);
}
