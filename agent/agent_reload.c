/* SPDX-License-Identifier: Apache-2.0 */
/* A new command for the workers, from the next round on: requested by our ctrunctl, checked when
 * the server offers it, adopted when the server says that all nodes can. */
#include <errno.h>

#include "agent/node/agent_private.h"

/* Two phases, so that all nodes change or none does: the server offers the command to each node, and sends TAKE only
 * after all have answered that they can. */
int agent_ask_reload(struct agent *agent, const char *command, uint32_t ticket,
                     struct ctrun_error *err)
{
    struct ct_reload *reload = &agent->asked_reload;
    int rc = agent_need_link(agent, err);

    if (rc < 0)
        return rc;
    if (agent->result->signal || agent->drained_by)
        return ct_fail(err, -ESRCH, "the run is ending on this node");
    *reload = (struct ct_reload){.step = CT_RELOAD_ASK, .ticket = ticket};
    if (ct_copy(reload->command, sizeof reload->command, command) < 0)
        return ct_fail(err, -EINVAL, "the command is too long"); /* fits */
    memcpy(agent->own_command, reload->command, sizeof agent->own_command);
    link_send(agent->link, &(struct ct_message){CT_MESSAGE_RELOAD, .reload = reload});
    return 0;
}

/* is_taken: the launcher adopts the command; else it only checks whether it could. *program: a hash of the program's
 * file, which must be the same on all nodes; 0: there is no file. */
static int look(struct agent *agent, const struct ct_reload *message, bool is_taken,
                uint64_t *program, struct ctrun_error *err)
{
    const struct agent_options *options = agent->options;

    *program = 0;
    if (!options->trusts_nodes && strcmp(message->command, agent->own_command) != 0)
        return ct_fail(err, -EPERM,
                       "without a token any program that reaches the rendezvous could "
                       "have asked for this: give all nodes the same "
                       "--rdzv-token-file, or --auth=none");
    if (!options->reload)
        return ct_fail(err, -ENOSYS, "this node cannot change its program");
    return options->reload(options->context, message, is_taken, program, err);
}

static void answer_offer(struct agent *agent, const struct ct_reload *message)
{
    struct ct_reload *answer = &agent->asked_reload;
    struct ctrun_error err;
    uint64_t program;
    const int rc = look(agent, message, false, &program, &err);

    *answer = (struct ct_reload){.number = message->number,
                                 .step = CT_RELOAD_ANSWER,
                                 .program = rc < 0 ? 0 : program};
    if (rc < 0)
        (void)ct_format(answer->text, sizeof answer->text, "%s",
                        err.text); /* cut is fine */
    link_send(agent->link, &(struct ct_message){CT_MESSAGE_RELOAD, .reload = answer});
}

static void emit(const struct agent *agent)
{
    ct_event_emit("reloaded", CT_INT("number", agent->reload.number),
                  CT_INT("generation", agent->start.generation),
                  CT_STR("by", agent->reload.by),
                  CT_STR("command", agent->reload.command));
}

/* If this node cannot take the command, it has come later than the others, or its file has changed
 * since it was asked: it cannot be in the next round with them. */
static void on_take(struct agent *agent, const struct ct_reload *message)
{
    struct ctrun_error err;
    uint64_t program;
    int rc;

    if (message->number <= agent->reload.number)
        return;
    rc = look(agent, message, true, &program, &err);
    if (rc == 0 && program && message->program && program != message->program)
        rc = ct_fail(&err, CTRUN_E_OTHER_JOB,
                     "the program's file on this node differs from the one on the "
                     "other nodes");
    if (rc < 0) {
        ct_wrap(&err, "the run has a new command line (ctrunctl reload on %s)",
                message->by);
        agent_give_up(agent, &err);
        return;
    }
    agent->reload = *message;
    agent->reload.program = program;
    agent->reload_waits = true;
    emit(agent);
}

static void answer_ctl(struct agent *agent, const struct ct_reload *message)
{
    char text[64];

    if (!agent->ctl_socket)
        return;
    (void)ct_format(text, sizeof text, "{\"taken\":true,\"number\":%llu}",
                    (unsigned long long)message->number);
    ctl_socket_answer(agent->ctl_socket, message->ticket, *message->text ? -ESRCH : 0,
                      *message->text ? message->text : text);
}

void agent_on_reload(struct agent *agent, const struct ct_reload *message)
{
    switch (message->step) {
    case CT_RELOAD_OFFER: answer_offer(agent, message); break;
    case CT_RELOAD_TAKE: on_take(agent, message); break;
    case CT_RELOAD_REPLY: answer_ctl(agent, message); break;
    default: ct_warn("reload ignored step=%d", message->step); break;
    }
}

/* Sent to each server that welcomes us: a server that was started anew knows only the command that
 * its agents send. */
void agent_send_reload(struct agent *agent)
{
    struct ct_reload *reload = &agent->asked_reload;

    if (agent->reload.number == 0)
        return;
    *reload = agent->reload;
    reload->step = CT_RELOAD_TAKE;
    link_send(agent->link, &(struct ct_message){CT_MESSAGE_RELOAD, .reload = reload});
}
