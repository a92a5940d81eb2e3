/* SPDX-License-Identifier: Apache-2.0 */
/* Changes that a user requests for the members of a live run: limits on the number of nodes, a
 * drain of one node, a restart of all. One agent asks for its ctrunctl; the server informs all
 * agents concerned. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/node/agent_private.h"

static void emit_limits(uint32_t min_nodes, uint32_t max_nodes, const char *by)
{
    ct_event_emit("resized", CT_INT("min_nodes", min_nodes),
                  CT_INT("max_nodes", max_nodes), CT_STR("by", by));
}

/* Sent also to a node that joins or resumes, which may know these limits. */
void agent_on_resize(struct agent *agent, const struct ct_resize *message)
{
    if (message->min_nodes == agent->min_nodes &&
        message->max_nodes == agent->max_nodes)
        return;
    agent->min_nodes = message->min_nodes;
    agent->max_nodes = message->max_nodes;
    emit_limits(message->min_nodes, message->max_nodes, message->by);
    if (agent->options->on_resize)
        agent->options->on_resize(agent->options->context, message);
}

/* Answers the ctrunctl that waits with this ticket; nothing happens if it is gone. */
static void answer_drain(struct agent *agent, const struct ct_drain *message)
{
    char text[CT_MISSING_MAX + CT_HOST_MAX + 64];

    if (!agent->ctl_socket)
        return;
    if (message->sent_to > 0)
        (void)ct_format(text, sizeof text, "{\"asked\":true,\"nodes\":%u}",
                        message->sent_to);
    else
        (void)ct_format(text, sizeof text, "the run has no node '%s': its nodes are %s",
                        message->host, message->hosts);
    ctl_socket_answer(agent->ctl_socket, message->ticket,
                      message->sent_to > 0 ? 0 : -ENOENT, text);
}

void agent_on_drain(struct agent *agent, const struct ct_drain *message)
{
    if (message->is_answer)
        answer_drain(agent, message);
    else
        agent_drain(agent, message->reason, getpid());
}

int agent_need_link(const struct agent *agent, struct ctrun_error *err)
{
    if (link_is_up(agent->link))
        return 0;
    return ct_fail(err, -ENOTCONN,
                   "this node is not connected to the rendezvous: its state is %s",
                   agent_state_name(agent));
}

static int refuse_ending(const struct agent *agent, struct ctrun_error *err)
{
    return agent->result->signal || agent->drained_by
               ? ct_fail(err, -ESRCH, "the run is ending on this node")
               : 0;
}

static int answer_resize(struct ct_buf *out, const struct agent_options *options,
                         const struct ct_resize *resize)
{
    char text[CT_RUN_ID_MAX + 256];
    int rc;

    (void)ct_format(text, sizeof text, "run %s was asked to have %u to %u nodes\n",
                    options->hello.run_id, resize->min_nodes,
                    resize->max_nodes); /* fits */
    if (options->given_nodes > 0 && resize->max_nodes > options->given_nodes)
        (void)ct_append(
            text, sizeof text, "  the batch system has given %u: %s\n",
            options->given_nodes,
            resize->min_nodes > options->given_nodes
                ? "the next round cannot begin without nodes from outside of it"
                : "more can only come from outside of it"); /* fits */
    rc = ct_buf_printf(out,
                       "{\"asked\":true,\"min_nodes\":%u,\"max_nodes\":%u,\"text\":",
                       resize->min_nodes, resize->max_nodes);
    if (rc == 0)
        rc = ct_json_append_str(out, text);
    return rc < 0 ? rc : ct_buf_printf(out, "}");
}

/* Answers at once, and refuses what the server would refuse. The server sends the new limits to all agents.
 * min_nodes 0: the present minimum, or max_nodes if that is less. */
int agent_ask_resize(void *context, uint32_t min_nodes, uint32_t max_nodes,
                     struct ct_buf *out, struct ctrun_error *err)
{
    struct agent *agent = context;
    const uint32_t unit = agent->options->hello.node_unit > 1
                              ? agent->options->hello.node_unit
                              : 1;
    struct ct_resize resize = {.max_nodes = max_nodes};
    int rc = agent_need_link(agent, err);

    if (min_nodes == 0)
        min_nodes = agent->min_nodes < max_nodes ? agent->min_nodes : max_nodes;
    resize.min_nodes = min_nodes;
    if (rc < 0 || (rc = refuse_ending(agent, err)) < 0)
        return rc;
    if (agent->options->is_alone)
        return ct_fail(
            err, -ESRCH,
            "the run was started for one node, and no other node can find it: "
            "start it with --nnodes=MIN:MAX and --rdzv-endpoint");
    if (min_nodes < 1 || max_nodes < min_nodes || max_nodes > AGENT_NODES_MAX)
        return ct_fail(err, CTRUN_E_USAGE,
                       "%u:%u nodes: 1 <= MIN <= MAX <= %d is needed", min_nodes,
                       max_nodes, AGENT_NODES_MAX);
    if (max_nodes - max_nodes % unit < min_nodes)
        return ct_fail(
            err, CTRUN_E_USAGE,
            "%u:%u nodes: there is no multiple of --node-unit=%u between them",
            min_nodes, max_nodes, unit);
    link_send(agent->link, &(struct ct_message){CT_MESSAGE_RESIZE, .resize = &resize});
    return answer_resize(out, agent->options, &resize);
}

/* `words`: the host, a blank, the reason. The answer comes by the ticket, because only the server knows the hosts. */
int agent_ask_drain(void *context, const char *words, uint32_t ticket,
                    struct ctrun_error *err)
{
    struct agent *agent = context;
    struct ct_drain drain = {.ticket = ticket};
    const char *blank = strchr(words, ' ');
    int rc = agent_need_link(agent, err);

    if (rc < 0)
        return rc;
    if (!blank || (size_t)(blank - words) >= sizeof drain.host)
        return ct_fail(err, -EINVAL, "a malformed request to drain");
    memcpy(drain.host, words, (size_t)(blank - words));
    (void)ct_copy(drain.reason, sizeof drain.reason, blank + 1);
    link_send(agent->link, &(struct ct_message){CT_MESSAGE_DRAIN, .drain = &drain});
    return 0;
}

/* ---- A new round ------------------------------------------------------------------------ */

/* The answer comes by the ticket, with the generation that is stopped. */
int agent_ask_restart(void *context, const char *reason, uint32_t ticket,
                      struct ctrun_error *err)
{
    struct agent *agent = context;
    struct ct_restart restart = {.ticket = ticket};
    int rc = agent_need_link(agent, err);

    if (rc < 0 || (rc = refuse_ending(agent, err)) < 0)
        return rc;
    (void)ct_copy(restart.reason, sizeof restart.reason, reason);
    link_send(agent->link,
              &(struct ct_message){CT_MESSAGE_RESTART, .restart = &restart});
    return 0;
}

void agent_on_restart(struct agent *agent, const struct ct_restart *message)
{
    char text[96];

    if (!agent->ctl_socket || !message->is_answer)
        return;
    (void)ct_format(text, sizeof text, "{\"asked\":true,\"generation\":%llu}",
                    (unsigned long long)message->generation);
    ctl_socket_answer(agent->ctl_socket, message->ticket,
                      message->generation ? 0 : -ESRCH,
                      message->generation ? text : message->refusal);
}

/* The server knows the samples of earlier failures and reports in the cause's facts that some came again. */
void agent_note_samples(const struct ct_stop *stop)
{
    const char *text = ct_facts_find(&stop->cause.facts, CT_FACT_AGAIN);

    if (!text)
        return;
    ct_event_emit("same_samples", CT_INT("generation", stop->generation),
                  CT_INT("rank", stop->cause.rank), CT_STR("text", text));
}

void agent_note_restart(const struct ct_stop *stop)
{
    if (stop->reason != CT_STOP_ASKED)
        return;
    ct_event_emit("restart_asked", CT_INT("generation", stop->generation),
                  CT_INT("restart_count", stop->restart_count),
                  CT_STR("by", stop->cause.host), CT_STR("reason", stop->cause.text));
}
