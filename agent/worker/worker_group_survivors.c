/* SPDX-License-Identifier: Apache-2.0 */
/* A stop because a rank or node is gone. The other ranks may wait in a collective with the lost rank, or with a
 * rank that waits for it, and no signal handler of a Python program runs there. Their connections to other ranks
 * are shut down, so that they get an error and can save:
 *
 *   - with a grace for survivors: those of all workers, before they are asked to end. A worker without a connection
 *     to another rank or to the worker store takes part in no collective: if that is so for all, there is no wait;
 *   - without: those of workers that have a handler for the signal, a moment after the signal. Workers without a
 *     handler are dead by then: mostly these are all, and no process has to be looked at.
 *
 * With --survive=torch no worker is stopped: the workers get the error and form another group. */
#include <errno.h>
#include <string.h>

#include "agent/process/signal_effect.h"
#include "agent/process/reap.h"
#include "agent/worker/worker_group_private.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"

struct walk {
    const struct worker_group *group;
    struct peer_sockets *sockets;
    int signal; /* 0: all workers are to be freed; else those that catch the signal */
    const int *rank; /* NULL: all; else this worker alone */
    int wanted;
};

/* A dead worker's children may hold its connections open: these are the other ends of other
 * workers' connections. */
static void add_process(void *context, const struct reap_process *process)
{
    struct walk *walk = context;

    for (int i = 0; i < walk->group->count; i++) {
        const struct worker *worker = &walk->group->workers[i];
        bool is_cut;

        if (worker->pid == 0 || worker->pid != process->session)
            continue;
        is_cut = worker->state == WORKER_RUNNING &&
                 (!walk->rank || worker->rank == *walk->rank) &&
                 (!walk->signal || signal_effect_is_caught(process->pid, walk->signal));
        walk->wanted += is_cut;
        peer_sockets_add(walk->sockets, worker->rank, process->pid, is_cut);
        return;
    }
}

static void count_catching(void *context, const struct reap_process *process)
{
    struct walk *walk = context;

    walk->wanted += signal_effect_is_caught(process->pid, walk->signal);
}

/* Reported once: a later try gets the same answer of the kernel. option NULL: no user has asked for
 * it. */
static bool report_refusal(struct worker_group *group, int error, const char *option)
{
    if (group->has_warned_refusal || !error)
        return false;
    group->has_warned_refusal = true;
    if (option)
        ct_warn("%s: ranks that wait for a lost one stay in their collective: %s (to "
                "free them ctrun needs Linux 5.6 and the right to trace one's own "
                "children: a "
                "container or kernel.yama.ptrace_scope may forbid that)",
                option, strerror(error));
    return true;
}

static void emit(const struct worker_group *group,
                 const struct peer_sockets_result *result, uint64_t grace_ms)
{
    ct_event_emit("survivors_freed", CT_INT("generation", group->start.generation),
                  CT_INT("connections", result->cut), CT_INT("ended", result->ended),
                  CT_INT("grace_ms", grace_ms),
                  CT_STR("refused", result->refused ? strerror(result->refused) : ""));
}

bool worker_group_free_survivors(struct worker_group *group, int signal,
                                 const struct worker_group_loss *loss)
{
    struct walk walk = {.group = group, .signal = signal};
    struct peer_sockets_result result;
    bool is_freed;

    if (signal)
        (void)reap_scan(NULL, count_catching, &walk);
    if ((signal && walk.wanted == 0) || !(walk.sockets = peer_sockets_create()))
        return false;
    (void)reap_scan(NULL, add_process, &walk);
    result = peer_sockets_cut(walk.sockets, &loss->job);
    peer_sockets_destroy(walk.sockets);
    (void)report_refusal(group, result.refused, signal ? NULL : "--survivor-grace");
    is_freed = result.cut + result.ended > 0 || (!signal && result.store > 0);
    if (is_freed || result.refused)
        emit(group, &result, signal || !is_freed ? 0 : loss->grace_ms);
    return is_freed;
}

void worker_group_cut(struct worker_group *group, const struct worker_group_loss *loss)
{
    struct walk walk = {.group = group, .sockets = peer_sockets_create()};
    struct peer_sockets_result result;

    if (!walk.sockets)
        return;
    (void)reap_scan(NULL, add_process, &walk);
    result = peer_sockets_cut(walk.sockets, &loss->job);
    peer_sockets_destroy(walk.sockets);
    if (report_refusal(group, result.refused, "--survive=torch") || result.cut > 0)
        emit(group, &result, 0);
}

int worker_group_sever(struct worker_group *group, int rank,
                       const struct peer_sockets_job *job, struct ctrun_error *err)
{
    struct walk walk = {
        .group = group, .sockets = peer_sockets_create(), .rank = &rank};
    struct peer_sockets_result result;

    if (!walk.sockets)
        return ct_fail(err, -ENOMEM, "out of memory");
    (void)reap_scan(NULL, add_process, &walk);
    result = peer_sockets_cut(walk.sockets, job);
    peer_sockets_destroy(walk.sockets);
    if (walk.wanted == 0)
        return ct_fail(err, -ESRCH, "rank %d is not running", rank);
    if (result.cut == 0 && result.refused)
        return ct_fail(
            err, -result.refused,
            "the connections of rank %d cannot be shut down from outside: %s", rank,
            strerror(result.refused));
    return result.cut > 0 ? 0
                          : ct_fail(err, -ENOTCONN,
                                    "rank %d has no connection to another rank, or has "
                                    "a GPU open (see ctrunctl(1))",
                                    rank);
}

int worker_group_throttle(struct worker_group *group, uint32_t rate,
                          const struct peer_sockets_job *job, struct ctrun_error *err)
{
    struct walk walk = {.group = group, .sockets = peer_sockets_create()};
    struct peer_sockets_result result;

    if (!walk.sockets)
        return ct_fail(err, -ENOMEM, "out of memory");
    (void)reap_scan(NULL, add_process, &walk);
    result = peer_sockets_throttle(walk.sockets, job, rate);
    peer_sockets_destroy(walk.sockets);
    if (result.cut > 0)
        return 0;
    if (result.refused)
        return ct_fail(err, -result.refused,
                       "the connections of its ranks cannot be limited from outside: "
                       "%s",
                       strerror(result.refused));
    return ct_fail(err, -ENOTCONN, "its ranks have no connection to another rank");
}
