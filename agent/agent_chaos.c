/* SPDX-License-Identifier: Apache-2.0 */
/* Faults that ctrunctl chaos requests. The agent of the target's node injects a fault. Lasting faults end by a timer of
 * this agent, even if ctrunctl or the agent that forwarded the request is gone by then. */
#include <errno.h>
#include <signal.h>

#include "agent/node/agent_private.h"
#include "agent/worker/worker.h"

static const char *const names[] = {
    [CT_FAULT_KILL] = "kill",        [CT_FAULT_STOP] = "stop",
    [CT_FAULT_CUT] = "cut",          [CT_FAULT_SLOW] = "slow",
    [CT_FAULT_FULL] = "full",        [CT_FAULT_END] = "end",
    [CT_FAULT_SEVER] = "sever",      [CT_FAULT_QUOTA] = "quota",
    [CT_FAULT_THROTTLE] = "throttle"};

/* ---- Events ------------------------------------------------------------------------------ */

static void emit_done(const struct agent *agent, const struct ct_fault *fault,
                      const char *by, const char *text)
{
    ct_event_emit("chaos", CT_INT("generation", agent->start.generation),
                  CT_STR("fault", names[fault->kind]), CT_INT("line", fault->line),
                  CT_INT("target", fault->target), CT_INT("signal", fault->signal),
                  CT_INT("for_ms", fault->for_ms),
                  CT_INT("by_ms", fault->kind == CT_FAULT_SLOW ? fault->by : 0),
                  CT_INT("to", fault->kind == CT_FAULT_THROTTLE ? fault->by : 0),
                  CT_STR("by", by), CT_STR("text", text));
    ct_warn("ctrunctl chaos on %s: %s (plan line %u)", by, text, fault->line);
}

static void emit_over(const struct agent *agent, enum ct_fault_kind kind, uint32_t line,
                      int target)
{
    ct_event_emit("chaos_over", CT_INT("generation", agent->start.generation),
                  CT_STR("fault", names[kind]), CT_INT("line", line),
                  CT_INT("target", target));
}

/* ---- Lasting faults ---------------------------------------------------------------------- */

static void on_resumed(void *context, const struct worker *worker)
{
    emit_over(context, CT_FAULT_STOP, worker->chaos.line, worker->rank);
}

/* rate 0: without a limit. */
static int throttle(struct agent *agent, uint32_t rate, struct ctrun_error *err)
{
    struct peer_sockets_job job;

    agent_fill_job(agent, &job);
    return worker_group_throttle(agent->group, rate, &job, err);
}

static void end_lasting(struct agent *agent, enum ct_fault_kind kind)
{
    agent->chaos.lasting[kind].until_ms = 0;
    if (kind == CT_FAULT_CUT)
        link_cut(agent->link, false);
    else if (kind == CT_FAULT_SLOW)
        link_slow(agent->link, 0);
    else if (kind == CT_FAULT_FULL)
        (void)worker_group_set_full(agent->group, false);
    else if (kind == CT_FAULT_QUOTA)
        (void)worker_group_set_quota(agent->group, false);
    else
        (void)throttle(agent, 0, NULL); /* who has ended meanwhile has no limit */
    emit_over(agent, kind, agent->chaos.lasting[kind].line,
              (int)agent->start.group_rank);
}

/* Ends all faults that are due at `now_ms` (UINT64_MAX: all) and sets the timer to the next one. */
static void end_until(struct agent *agent, uint64_t now_ms)
{
    uint64_t next_ms = worker_group_resume(agent->group, now_ms, on_resumed, agent);

    for (int kind = CT_FAULT_CUT; kind < CT_FAULT_KINDS; kind++) {
        const uint64_t until_ms = agent->chaos.lasting[kind].until_ms;

        if (until_ms != 0 && until_ms <= now_ms)
            end_lasting(agent, (enum ct_fault_kind)kind);
        else if (until_ms != 0 && (next_ms == 0 || until_ms < next_ms))
            next_ms = until_ms;
    }
    if (next_ms != 0)
        loop_timer_set(agent->chaos.timer, (uint64_t)ct_left_ms(next_ms));
}

static void on_timer(void *context)
{
    end_until(context, ct_now_ms());
}

int agent_open_chaos(struct agent *agent, struct ctrun_error *err)
{
    if (!agent->options->allows_chaos)
        return 0;
    agent->chaos.timer = loop_timer_open(agent->loop, on_timer, agent);
    return agent->chaos.timer ? 0 : ct_fail(err, -ENOMEM, "agent: out of memory");
}

/* ---- One fault --------------------------------------------------------------------------- */

static bool stops_for_good(int signal)
{
    return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN ||
           signal == SIGTTOU;
}

/* The message may come from any agent of the run: every field is checked again here. */
static int check(const struct agent *agent, const struct ct_fault *fault,
                 struct ctrun_error *err)
{
    if (!agent->options->allows_chaos)
        return ct_fail(err, -EPERM, "%s was started without --allow-chaos",
                       agent->options->hello.host);
    if (fault->kind < CT_FAULT_KILL || fault->kind >= CT_FAULT_KINDS ||
        fault->for_ms > CT_FAULT_FOR_MAX_MS ||
        (fault->kind == CT_FAULT_THROTTLE
             ? fault->by < CT_FAULT_RATE_MIN || fault->by > CT_FAULT_RATE_MAX
             : fault->by > CT_FAULT_BY_MAX_MS) ||
        (fault->kind == CT_FAULT_KILL &&
         (fault->signal < 1 || fault->signal >= NSIG || stops_for_good(fault->signal))))
        return ct_fail(err, -EINVAL, "a malformed fault");
    if (fault->kind == CT_FAULT_CUT && !link_is_up(agent->link))
        return ct_fail(err, -ENOTCONN, "this node is not connected to the rendezvous");
    return 0;
}

static int fill_disk(struct agent *agent, struct ctrun_error *err)
{
    if (worker_group_set_full(agent->group, true) > 0)
        return 0;
    (void)worker_group_set_full(agent->group, false);
    return ct_fail(err, -ESRCH,
                   "its workers have no log files: start the run with -r3 or -t3");
}

static int sever(struct agent *agent, int rank, struct ctrun_error *err)
{
    struct peer_sockets_job job;

    agent_fill_job(agent, &job);
    return worker_group_sever(agent->group, rank, &job, err);
}

/* After this the link may have another connection, or none. `by`: the host that sent the request;
 * `text`: the line of the plan. The link is cut or slowed last, so that the event is emitted first. */
static int inject(struct agent *agent, const struct ct_fault *fault, const char *by,
                  const char *text, struct ctrun_error *err)
{
    int rc = 0;

    if (fault->kind == CT_FAULT_END) {
        end_until(agent, UINT64_MAX);
        return 0;
    }
    if (fault->kind == CT_FAULT_SEVER)
        rc = sever(agent, fault->target, err);
    else if (ct_fault_is_of_rank(fault))
        rc = worker_group_inject(agent->group, fault, err);
    else if (fault->kind == CT_FAULT_FULL)
        rc = fill_disk(agent, err);
    else if (fault->kind == CT_FAULT_QUOTA &&
             worker_group_set_quota(agent->group, true) == 0)
        rc = ct_fail(err, -ESRCH, "it has no worker whose files could be limited");
    else if (fault->kind == CT_FAULT_THROTTLE)
        rc = throttle(agent, fault->by, err);
    if (rc < 0)
        return rc;
    emit_done(agent, fault, by, text);
    if (!ct_fault_is_of_rank(fault)) {
        agent->chaos.lasting[fault->kind].until_ms = ct_deadline_ms(fault->for_ms);
        agent->chaos.lasting[fault->kind].line = fault->line;
    }
    end_until(agent, ct_now_ms());
    if (fault->kind == CT_FAULT_SLOW)
        link_slow(agent->link, fault->by);
    else if (fault->kind == CT_FAULT_CUT)
        link_cut(agent->link, true);
    return 0;
}

/* ---- Whose target ------------------------------------------------------------------------ */

/* Decides by the ranks of the current or last round. */
static bool is_ours(const struct agent *agent, const struct ct_fault *fault)
{
    const int64_t first = agent->start.rank_base;

    if (!ct_fault_is_of_rank(fault))
        return fault->kind == CT_FAULT_END ||
               fault->target == (int64_t)agent->start.group_rank;
    return fault->target >= first && fault->target < first + agent->options->join.slots;
}

/* 0: injected here. 1: sent to the agent of the target's node; its answer comes by the ticket. */
int agent_ask_chaos(struct agent *agent, const struct ct_fault *fault, const char *text,
                    uint32_t ticket, struct ctrun_error *err)
{
    struct ct_chaos chaos = {.ticket = ticket, .fault = *fault};
    const struct ct_message message = {CT_MESSAGE_CHAOS, .chaos = &chaos};
    const bool is_all = fault->kind == CT_FAULT_END;
    int rc = check(agent, fault, err);

    if (rc < 0)
        return rc;
    (void)ct_copy(chaos.text, sizeof chaos.text, text); /* cut is fine */
    if (agent->start.generation == 0)
        return is_all ? 0 : ct_fail(err, -ESRCH, "no round has begun yet");
    if (is_all) /* an agent that misses this message still has its timers */
        link_send(agent->link, &message);
    if (is_ours(agent, fault))
        return inject(agent, fault, agent->options->hello.host, chaos.text, err);
    if ((rc = agent_need_link(agent, err)) < 0)
        return rc;
    link_send(agent->link, &message);
    return 1;
}

/* A CUT is answered before it is injected: afterwards nothing can be sent. */
static void inject_for(struct agent *agent, const struct ct_chaos *message)
{
    struct ct_chaos answer = *message;
    const struct ct_message out = {CT_MESSAGE_CHAOS, .chaos = &answer};
    const bool is_cut = message->fault.kind == CT_FAULT_CUT;
    struct ctrun_error err;
    int rc = check(agent, &message->fault, &err);

    if (rc == 0 && !is_ours(agent, &message->fault))
        rc = ct_fail(&err, -ESRCH, "the target is no longer on this node");
    answer.is_answer = 1;
    answer.text[0] = '\0';
    if (rc == 0 && is_cut)
        link_send(agent->link, &out);
    if (rc == 0)
        rc = inject(agent, &message->fault, message->host, message->text, &err);
    if (rc < 0)
        (void)ct_copy(answer.text, sizeof answer.text, err.text); /* cut is fine */
    if ((rc < 0 || !is_cut) && message->fault.kind != CT_FAULT_END)
        link_send(agent->link, &out);
}

void agent_on_chaos(struct agent *agent, const struct ct_chaos *message)
{
    if (!message->is_answer)
        inject_for(agent, message);
    else if (agent->ctl_socket)
        ctl_socket_answer(agent->ctl_socket, message->ticket,
                          *message->text ? -EINVAL : 0,
                          *message->text ? message->text : "{\"done\":true}");
}
