/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/crew.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cage.h"
#include "agent/cgroup.h"
#include "agent/control.h"
#include "agent/facts.h"
#include "agent/fence.h"
#include "agent/leftovers.h"
#include "agent/limits.h"
#include "agent/memory.h"
#include "agent/pmi.h"
#include "agent/policy.h"
#include "agent/reap.h"
#include "agent/remains.h"
#include "agent/worker.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

struct crew {
    struct crew_options options;
    struct worker_place place;
    struct ct_start start;
    struct worker *workers;
    int count;
    struct logfile_writer *files;
    struct policy policy;
    struct loop_timer *timer;         /* the policy's next look */
    struct loop_timer *memory_timer;  /* the next look at the memory of the workers */
    struct loop_timer *restart_timer; /* the next look at what one has left behind */
    struct cgroup cgroup;
    char oom_proof[320]; /* of this round; empty: none */
    struct leftovers leftovers;
};

static void on_timer(void *context);
static void on_memory(void *context);
static void on_remains(void *context);

int crew_create(struct crew **out, const struct crew_options *options)
{
    struct crew *crew = ct_zalloc(sizeof *crew);

    if (!crew)
        return -ENOMEM;
    crew->options = *options;
    crew->count = (int)options->agent->join.slots;
    crew->workers = ct_zalloc_array((size_t)crew->count, sizeof *crew->workers);
    crew->timer = loop_timer_open(options->loop, on_timer, crew);
    crew->memory_timer = loop_timer_open(options->loop, on_memory, crew);
    crew->restart_timer = loop_timer_open(options->loop, on_remains, crew);
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

/* ---- Stopping --------------------------------------------------------------------------- */

static int running_count(const struct crew *crew)
{
    int count = 0;

    for (int i = 0; i < crew->count; i++)
        count += crew->workers[i].state == WORKER_RUNNING;
    return count;
}

/* True for the session of a worker that we have asked to stop. */
static bool is_asked_session(const struct crew *crew, pid_t session)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].pid == session && crew->workers[i].stop_signal)
            return true;
    return false;
}

struct census_walk {
    const struct crew *crew;
    struct policy_census census;
};

static void count_process(void *context, const struct reap_process *process)
{
    struct census_walk *walk = context;

    if (is_asked_session(walk->crew, process->session))
        walk->census.asked++;
    else
        walk->census.leftovers++;
}

static struct policy_census take_census(const struct crew *crew, uint64_t now_ms)
{
    struct census_walk walk = {.crew = crew};

    if (reap_is_childless())
        return walk.census;
    if (policy_wants_census(&crew->policy, now_ms))
        (void)reap_scan(NULL, count_process, &walk);
    if (walk.census.leftovers == 0 && walk.census.asked == 0)
        walk.census.asked = 1; /* a zombie, or not counted: somebody is there */
    return walk.census;
}

struct signal_walk {
    const struct crew *crew;
    unsigned action;
    int signal;
};

static void signal_process(void *context, const struct reap_process *process)
{
    const struct signal_walk *walk = context;
    const bool is_asked = is_asked_session(walk->crew, process->session);

    switch (walk->action) {
    case POLICY_SIGNAL_REST: /* the worker's own group has it already */
        if (is_asked && process->group != process->session)
            (void)kill(process->pid, walk->signal);
        break;
    case POLICY_KILL_LEFTOVERS:
        if (!is_asked)
            (void)kill(process->pid, SIGKILL);
        break;
    case POLICY_KILL_ALL: (void)kill(process->pid, SIGKILL); break;
    }
}

static void signal_running(struct crew *crew, int signal)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RUNNING)
            worker_signal(&crew->workers[i], signal);
}

static bool is_running(const struct crew *crew)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RUNNING)
            return true;
    return false;
}

static void note_leftover(void *context, const struct reap_process *process)
{
    struct crew *crew = context;

    if (!is_asked_session(crew, process->session))
        leftovers_note(&crew->leftovers, process->pid);
}

static void emit_leftovers(const struct crew *crew, const struct leftovers *leftovers,
                           const char *text)
{
    struct ct_event event;

    ct_event_begin(&event, "leftovers_killed");
    ct_event_int(&event, "generation", (int64_t)crew->start.generation);
    ct_event_int(&event, "count", leftovers->count);
    ct_event_str(&event, "processes", text);
    ct_event_end(&event);
}

static void tell_leftovers(struct crew *crew)
{
    const char *text = leftovers_text(&crew->leftovers);

    if (crew->leftovers.count == 0)
        return;
    emit_leftovers(crew, &crew->leftovers, text);
    if (crew->options.agent->on_leftovers)
        crew->options.agent->on_leftovers(crew->options.agent->context, text);
    else
        ct_warn("killed what workers had left behind: %s", text);
}

static void act(struct crew *crew, unsigned actions)
{
    static const unsigned walks[] = {POLICY_SIGNAL_REST, POLICY_KILL_LEFTOVERS,
                                     POLICY_KILL_ALL};

    if (actions & POLICY_SIGNAL)
        signal_running(crew, crew->policy.signal);
    if (actions & POLICY_KILL_LEFTOVERS)
        (void)reap_scan(NULL, note_leftover, crew);
    if (actions & POLICY_KILL_ALL)
        signal_running(crew, SIGKILL);
    if (actions & POLICY_KILL_ALL ||
        (actions & POLICY_KILL_LEFTOVERS && !is_running(crew)))
        (void)cage_kill();
    for (size_t i = 0; i < sizeof walks / sizeof *walks; i++) {
        struct signal_walk walk = {crew, walks[i], crew->policy.signal};

        if (actions & walks[i])
            (void)reap_scan(NULL, signal_process, &walk);
    }
}

/* Everybody is gone, or will not go. */
static void end_stop(struct crew *crew)
{
    const bool is_stuck = crew->policy.phase == POLICY_UNKILLABLE;
    int survivors = 0;

    loop_timer_stop(crew->timer);
    for (int i = 0; i < crew->count && is_stuck; i++)
        if (crew->workers[i].state == WORKER_RUNNING) {
            worker_give_up(&crew->workers[i], &crew->place);
            survivors++;
        }
    memset(&crew->policy, 0, sizeof crew->policy);
    tell_leftovers(crew);
    crew->options.on_gone(crew->options.context,
                          is_stuck && survivors == 0 ? 1 : survivors);
}

static void continue_stop(struct crew *crew)
{
    const uint64_t now_ms = ct_now_ms();
    const struct policy_census census = take_census(crew, now_ms);
    uint64_t wake_ms;

    act(crew, policy_next(&crew->policy, &census, now_ms, &wake_ms));
    if (crew->policy.phase == POLICY_DONE || crew->policy.phase == POLICY_UNKILLABLE)
        end_stop(crew);
    else if (wake_ms != UINT64_MAX)
        loop_timer_set(crew->timer, wake_ms > now_ms ? wake_ms - now_ms : 0);
}

static void on_timer(void *context)
{
    crew_reap(context); /* a SIGCHLD may be on its way, too */
}

/* They stay what they are: ended by a failure of their own. */
static void give_up_restarts(struct crew *crew)
{
    loop_timer_stop(crew->restart_timer);
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RESTARTING)
            crew->workers[i].state = WORKER_ENDED;
}

void crew_stop(struct crew *crew, int signal, uint64_t grace_ms)
{
    const uint64_t now_ms = ct_now_ms();

    give_up_restarts(crew);
    if (crew->policy.phase == POLICY_IDLE)
        policy_begin(&crew->policy, running_count(crew) > 0 ? signal : 0, grace_ms,
                     now_ms);
    else
        policy_hurry(&crew->policy, signal, grace_ms, now_ms);
    continue_stop(crew);
}

void crew_extend(struct crew *crew, uint64_t grace_ms)
{
    policy_extend(&crew->policy, grace_ms, ct_now_ms());
    continue_stop(crew);
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

/* ---- Memory ----------------------------------------------------------------------------- */

/* As long as anybody runs. */
static void on_memory(void *context)
{
    struct crew *crew = context;
    bool is_any = false;

    for (int i = 0; i < crew->count; i++) {
        struct worker *worker = &crew->workers[i];

        is_any |= worker->state == WORKER_RESTARTING;
        if (worker->state != WORKER_RUNNING)
            continue;
        memory_add(&worker->memory, memory_read_kib(worker->pid), ct_now_ms());
        is_any = true;
    }
    if (is_any)
        loop_timer_set(crew->memory_timer, MEMORY_EVERY_MS);
}

/* "rank 0 holds 5.1 GiB, rank 3 4.2 GiB": who has more than `bytes`; cut is fine. */
static void find_larger(const struct crew *crew, uint64_t bytes, char *dst, size_t size)
{
    char text[FACTS_SIZE_MAX];

    dst[0] = '\0';
    for (int i = 0; i < crew->count; i++) {
        const struct worker *worker = &crew->workers[i];
        const int64_t kib = worker->state == WORKER_RUNNING
                                ? memory_read_kib(worker->pid)
                                : -1;
        const size_t used = strlen(dst);

        if (kib <= 0 || (uint64_t)kib * 1024 <= bytes)
            continue;
        facts_format_size(text, (uint64_t)kib * 1024);
        if (ct_format(dst + used, size - used, "%srank %d %s%s", used ? ", " : "",
                      worker->rank, used ? "" : "holds ", text) < 0)
            dst[used] = '\0';
    }
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

static bool is_own_failure(const struct worker *worker)
{
    return worker->state == WORKER_ENDED && worker->failure.cause != CT_CAUSE_NONE &&
           worker->failure.cause != CT_CAUSE_STOPPED;
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
        find_larger(crew, death->peak_bytes, larger, sizeof larger);
    worker_end(worker, &crew->place, *death);
    if (death->crash_record >= 0)
        close(death->crash_record);
    death->larger = "";
}

/* ---- Restarts of one alone -------------------------------------------------------------- */

static bool is_at_work(const struct crew *crew)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RUNNING ||
            crew->workers[i].state == WORKER_RESTARTING)
            return true;
    return false;
}

/* Of those that have failed by now: one whose failure is everybody's, `first` if it is not only
 * one's own; NULL: each of them is started again alone. */
static struct worker *find_final(struct crew *crew, struct worker *first)
{
    for (int i = 0; i < crew->count; i++)
        if (is_own_failure(&crew->workers[i]) && !crew->workers[i].plan.may_restart)
            return first;
    for (int i = 0; i < crew->count; i++) {
        struct worker *worker = &crew->workers[i];

        if (!is_own_failure(worker))
            continue;
        if (!crew->options.restarts_alone(crew->options.context, &worker->failure))
            return worker;
        worker->state = WORKER_RESTARTING;
    }
    return NULL;
}

/* True when nothing of it is left. */
static bool is_buried(const struct crew *crew, struct worker *worker)
{
    struct leftovers named = {0};
    int alive;

    if (worker->remains)
        return remains_kill(worker->remains, NULL) == 0;
    worker->gone_by_ms = 0;
    if (!(worker->remains = ct_zalloc(sizeof *worker->remains)))
        return false; /* it is over */
    worker->remains->session = worker->pid;
    worker->gone_by_ms = ct_deadline_ms(AGENT_KILL_WAIT_MS);
    alive = remains_kill(worker->remains, &named);
    if (named.count > 0)
        emit_leftovers(crew, &named, leftovers_text(&named));
    return alive == 0;
}

/* False: one could not be started, which was told. */
static bool continue_restarts(struct crew *crew)
{
    bool is_any = false;

    for (int i = 0; i < crew->count; i++) {
        struct worker *worker = &crew->workers[i];
        bool is_over;

        if (worker->state != WORKER_RESTARTING)
            continue;
        if (is_buried(crew, worker)) {
            control_catch_up(crew->options.control); /* its steps are not the next one's */
            is_over = worker_restart(worker, &crew->place) < 0;
        } else {
            is_over = ct_left_ms(worker->gone_by_ms) == 0;
            is_any = true;
        }
        if (!is_over)
            continue;
        worker->state = WORKER_ENDED;
        crew->options.on_failure(crew->options.context, &worker->failure);
        return false;
    }
    if (is_any)
        loop_timer_set(crew->restart_timer, AGENT_RESCAN_MS);
    return true;
}

static void on_remains(void *context)
{
    crew_reap(context); /* a SIGCHLD may be on its way, too */
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
        if (!first && is_own_failure(worker))
            first = worker;
    }
    if (crew->policy.phase != POLICY_IDLE)
        continue_stop(crew);
    else if (first && (first = find_final(crew, first)))
        crew->options.on_failure(crew->options.context, &first->failure);
    else if (continue_restarts(crew) && ended > 0 && !is_at_work(crew))
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
            is_own_failure(worker) == want_own)
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
