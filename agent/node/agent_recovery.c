/* SPDX-License-Identifier: Apache-2.0 */
/* How long it took until the others continued without a lost worker (--survive): one bill for each recovery.
 *
 *     NONE ──a loss──> LOST ──it is decided who continues──> DECIDED ──step, and join if one is awaited──> NONE (bill)
 *                       └── the round is stopped: its restart has a bill      └── stopped, another loss, survive_ms: bill
 *
 * The agent does not see when the group is formed again: that part ends with the next step. */
#include <errno.h>

#include "agent/node/agent_private.h"
#include "agent/worker/worker.h"

static void stop(struct agent *agent)
{
    agent->recovery.state = RECOVERY_NONE;
    loop_timer_stop(agent->recovery.timer);
}

static void close_bill(struct agent *agent, bool is_whole)
{
    stop(agent);
    agent->recovery.out.is_whole = is_whole;
    agent_send_bill(agent, &agent->recovery.out);
}

static bool is_member(const struct agent *agent, const struct worker *worker)
{
    return worker->state == WORKER_RUNNING && !worker->is_new &&
           worker->started_ms < agent->recovery.decided_ms;
}

/* When the last of the members here made its first step since the decision, as far as looks can tell; 0: not all
 * have. */
static uint64_t find_step(const struct agent *agent, int *rank)
{
    uint64_t at_ms = 0;

    for (int i = 0; i < worker_group_count(agent->group); i++) {
        const struct worker *worker = worker_group_worker(agent->group, i);

        if (!is_member(agent, worker))
            continue;
        if (worker->stepped_ms <= agent->recovery.decided_ms)
            return 0;
        if (worker->stepped_ms > at_ms) {
            at_ms = worker->stepped_ms;
            *rank = worker->rank;
        }
    }
    return at_ms;
}

/* A member here has reported steps. */
static bool has_steps(const struct agent *agent)
{
    for (int i = 0; i < worker_group_count(agent->group); i++)
        if (is_member(agent, worker_group_worker(agent->group, i)) &&
            worker_group_worker(agent->group, i)->step >= 0)
            return true;
    return false;
}

static void look(struct agent *agent)
{
    struct recovery_watch *watch = &agent->recovery;
    const uint64_t age_ms = ct_now_ms() - watch->decided_ms;
    const bool has_step = bill_known(&watch->out.bill) & 1u << BILL_NEXT_STEP;
    uint64_t at_ms;
    int rank;

    if (!has_step && (at_ms = find_step(agent, &rank)) > 0) {
        bill_end_phase(&watch->out.bill, BILL_NEXT_STEP, at_ms, rank);
        watch->awaits_step = false;
    }
    if (!watch->awaits_step && !watch->awaits_join)
        close_bill(agent, true);
    else if (age_ms >= agent->options->survive_ms)
        close_bill(agent, !watch->awaits_step);
    else
        loop_timer_set(watch->timer, RECOVERY_LOOK_MS + age_ms / RECOVERY_LOOK_PARTS);
}

static void on_time(void *context)
{
    struct agent *agent = context;

    agent->is_refreshing = true;
    worker_socket_refresh(agent->worker_socket);
    agent->is_refreshing = false;
    look(agent);
}

void agent_recovery_lose(struct agent *agent, const struct ct_failure *failure)
{
    struct recovery_watch *watch = &agent->recovery;
    const uint64_t now_ms = ct_now_ms();
    const bool is_dated = failure && *failure->error_file && failure->happened_ms > 0 &&
                          failure->happened_ms < now_ms;

    if (!watch->timer || watch->state == RECOVERY_LOST)
        return;
    if (watch->state == RECOVERY_DECIDED)
        close_bill(agent, false);
    watch->state = RECOVERY_LOST;
    watch->out = (struct agent_bill){.of = BILL_OF_RECOVERY,
                                     .generation = agent->start.generation,
                                     .restart_count = agent->start.restart_count,
                                     .lost_steps = -1};
    bill_begin_recovery(&watch->out.bill, is_dated ? BILL_DETECT : BILL_DECIDE,
                        is_dated ? failure->happened_ms : now_ms);
    if (is_dated)
        bill_end_phase(&watch->out.bill, BILL_DETECT, now_ms, -1);
}

void agent_recovery_decide(struct agent *agent)
{
    struct recovery_watch *watch = &agent->recovery;

    if (watch->state != RECOVERY_LOST)
        return;
    watch->state = RECOVERY_DECIDED;
    watch->decided_ms = ct_now_ms();
    bill_end_phase(&watch->out.bill, BILL_DECIDE, watch->decided_ms, -1);
    watch->awaits_step = has_steps(agent);
    watch->awaits_join = agent->options->survive_replace > agent->survival.replaced;
    if (!watch->awaits_join)
        watch->out.bill.others |= 1u << BILL_JOIN;
    loop_timer_set(watch->timer, RECOVERY_LOOK_MS);
}

void agent_recovery_join(struct agent *agent)
{
    struct recovery_watch *watch = &agent->recovery;

    if (watch->state != RECOVERY_DECIDED)
        return;
    bill_end_phase(&watch->out.bill, BILL_JOIN, ct_now_ms(), -1);
    watch->awaits_join = false;
    loop_timer_set(watch->timer, 0); /* not here: the workers are being answered */
}

void agent_recovery_stop(struct agent *agent)
{
    if (agent->recovery.state == RECOVERY_DECIDED)
        close_bill(agent, !agent->recovery.awaits_step);
    else if (agent->recovery.state == RECOVERY_LOST)
        stop(agent);
}

int agent_open_recovery(struct agent *agent, struct ctrun_error *err)
{
    if (!agent->options->on_bill || agent->options->survive_ms == 0)
        return 0;
    agent->recovery.timer = loop_timer_open(agent->loop, on_time, agent);
    return agent->recovery.timer ? 0 : ct_fail(err, -ENOMEM, "agent: out of memory");
}

void agent_close_recovery(struct agent *agent)
{
    loop_timer_close(agent->recovery.timer);
}
