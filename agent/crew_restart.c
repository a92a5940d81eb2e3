/* SPDX-License-Identifier: Apache-2.0 */
/* One worker is started again alone while the others go on: once all that the dead one has left is
 * dead, too (remains.h). */
#include "agent/control.h"
#include "agent/crew_private.h"
#include "agent/limits.h"
#include "agent/remains.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"

bool crew_is_at_work(const struct crew *crew)
{
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RUNNING ||
            crew->workers[i].state == WORKER_RESTARTING)
            return true;
    return false;
}

struct worker *crew_find_final(struct crew *crew, struct worker *first)
{
    for (int i = 0; i < crew->count; i++)
        if (worker_has_failed(&crew->workers[i]) && !crew->workers[i].plan.may_restart)
            return first;
    for (int i = 0; i < crew->count; i++) {
        struct worker *worker = &crew->workers[i];

        if (!worker_has_failed(worker))
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
        crew_emit_leftovers(crew, &named, leftovers_text(&named));
    return alive == 0;
}

bool crew_continue_restarts(struct crew *crew)
{
    bool is_any = false;

    for (int i = 0; i < crew->count; i++) {
        struct worker *worker = &crew->workers[i];
        bool is_over;

        if (worker->state != WORKER_RESTARTING)
            continue;
        if (is_buried(crew, worker)) {
            /* What it has told is not the next one's, and what it died of no one else's. */
            control_catch_up(crew->options.control);
            crew->oom_proof[0] = '\0';
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

void crew_on_remains(void *context)
{
    crew_reap(context); /* a SIGCHLD may be on its way, too */
}

void crew_give_up_restarts(struct crew *crew)
{
    loop_timer_stop(crew->restart_timer);
    for (int i = 0; i < crew->count; i++)
        if (crew->workers[i].state == WORKER_RESTARTING)
            crew->workers[i].state = WORKER_ENDED;
}
