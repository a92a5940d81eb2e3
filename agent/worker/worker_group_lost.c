/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that continue without a lost worker: this file decides which, once all of them have
 * asked. */
#include <signal.h>
#include <unistd.h>

#include "agent/worker/worker_group_private.h"
#include "worker_sdk/base/str.h"

enum {
    LATE_SHOWN = 8 /* the others are counted */
};

static bool runs(const struct worker *worker)
{
    return worker->state == WORKER_RUNNING;
}

/* Identified by the session: processes that a worker has started are in it, too. */
bool worker_group_ask(struct worker_group *group, int rank, pid_t pid)
{
    const pid_t session = pid > 0 ? getsid(pid) : -1;

    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];

        if (!runs(worker) || worker->rank != rank || worker->pid != session ||
            worker->is_renewed)
            continue;
        worker->asks = true;
        return true;
    }
    return false; /* in no worker's session, or its worker ends */
}

static bool is_member(const struct worker *worker)
{
    return runs(worker) && !worker->is_new;
}

/* While a process of a lost worker lives, nothing is decided: that process may believe that it is a
 * member. New workers are not waited for. */
static bool is_decided(const struct worker_group *group)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].state == WORKER_RESTARTING ||
            (is_member(&group->workers[i]) && !group->workers[i].asks))
            return false;
    return true;
}

static void set_rank(uint8_t *ranks, int rank)
{
    ranks[rank / 8] |= (uint8_t)(1u << rank % 8);
}

/* The ranks for STILL; -1 until only another loss can change them. A new worker that has not asked
 * is left out, and will be in a later STILL. */
int worker_group_list_still(const struct worker_group *group, uint8_t *ranks,
                            size_t bytes)
{
    int count = 0;

    memset(ranks, 0, bytes);
    if (!is_decided(group))
        return -1;
    for (int i = 0; i < group->count; i++) {
        const struct worker *worker = &group->workers[i];

        if (!runs(worker) || (worker->is_new && !worker->asks) ||
            (size_t)worker->rank >= bytes * 8)
            continue;
        set_rank(ranks, worker->rank);
        count++;
    }
    return count;
}

/* The decision of the server. A lost rank may be replaced only from now on: an earlier new
 * worker of that rank would be taken for the lost one, which the decision could still name. */
void worker_group_on_world(struct worker_group *group, const uint8_t *ranks,
                           size_t bytes)
{
    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];
        const bool is_in = (size_t)worker->rank < bytes * 8 &&
                           ranks[worker->rank / 8] & 1u << worker->rank % 8;

        if (is_in)
            worker->asks = worker->is_new = false;
        else
            worker->is_survived = worker->is_lost;
    }
    group->has_world = true;
    worker_group_look_soon(group);
}

/* Asking and deciding in one step, because this node is the only one. */
int worker_group_regroup(struct worker_group *group, uint8_t *ranks, size_t bytes,
                         int *joined)
{
    int count = 0;

    *joined = 0;
    memset(ranks, 0, bytes);
    if (!is_decided(group))
        return 0;
    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];

        if (!runs(worker) || !worker->asks || (size_t)worker->rank >= bytes * 8)
            continue;
        *joined += worker->is_new;
        worker->is_new = worker->asks = false;
        set_rank(ranks, worker->rank);
        count++;
    }
    for (int i = 0; count > 0 && i < group->count; i++)
        group->workers[i].is_survived = group->workers[i].is_lost;
    return count;
}

static struct worker *find_rank(const struct worker_group *group, int rank)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].rank == rank)
            return &group->workers[i];
    return NULL;
}

bool worker_group_is_new(const struct worker_group *group, int rank)
{
    const struct worker *worker = find_rank(group, rank);

    return worker && worker->is_new;
}

bool worker_group_is_asking(const struct worker_group *group, int rank)
{
    const struct worker *worker = find_rank(group, rank);

    return worker && worker->asks;
}

void worker_group_forget_new(struct worker_group *group, int rank)
{
    struct worker *worker = find_rank(group, rank);

    if (worker)
        worker->is_new = false;
}

bool worker_group_has_new(const struct worker_group *group)
{
    for (int i = 0; i < group->count; i++)
        if (group->workers[i].is_new && runs(&group->workers[i]))
            return true;
    return false;
}

void worker_group_renew_new(struct worker_group *group)
{
    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];

        if (!runs(worker) || !worker->is_new || worker->asks)
            continue;
        worker->is_renewed = true;
        (void)worker_pass_signal(worker, SIGKILL);
    }
}

bool worker_group_is_renewed(const struct worker_group *group, int rank)
{
    const struct worker *worker = find_rank(group, rank);

    return worker && worker->is_renewed;
}

void worker_group_end_new(struct worker_group *group)
{
    group->has_world = group->is_left_alone = true;
    worker_group_look_soon(group);
}

bool worker_group_has_asked(const struct worker_group *group)
{
    for (int i = 0; i < group->count; i++)
        if (is_member(&group->workers[i]) && group->workers[i].asks)
            return true;
    return false;
}

void worker_group_look_soon(struct worker_group *group)
{
    loop_timer_set(group->restart_timer, 0);
}

/* The first loss that is not decided: it may be the cause of the other ends. */
struct ct_failure *worker_group_find_loss(struct worker_group *group)
{
    struct ct_failure *first = NULL;

    for (int i = 0; i < group->count; i++) {
        struct worker *worker = &group->workers[i];

        if (worker->is_lost && !worker->is_survived &&
            (!first || worker->failure.happened_ms < first->happened_ms))
            first = &worker->failure;
    }
    return first;
}

int worker_group_list_late(const struct worker_group *group,
                           char list[WORKER_GROUP_VICTIMS_MAX_BYTES])
{
    int running = 0;
    int late = 0;

    *list = '\0';
    for (int i = 0; i < group->count; i++) {
        const struct worker *worker = &group->workers[i];

        running += is_member(worker);
        if (is_member(worker) && !worker->asks && late++ < LATE_SHOWN)
            (void)ct_append_item(list, WORKER_GROUP_VICTIMS_MAX_BYTES, ", ", "%d",
                                 worker->rank);
    }
    if (late > LATE_SHOWN)
        (void)ct_append(list, WORKER_GROUP_VICTIMS_MAX_BYTES, " and %d more",
                        late - LATE_SHOWN);
    return running;
}
