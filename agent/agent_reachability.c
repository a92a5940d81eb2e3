/* SPDX-License-Identifier: Apache-2.0 */
/* Before workers start: finds the address of group rank 0 that works from this node; and if nodes could
 * connect on several networks, proves that the chosen one works.
 *
 *     agent_find_reachability ── rank 0 answers ──> a sample of the others, too ──> REACHABILITY, hold
 *                            │                        └── one does not ──> REACHABILITY with why, hold
 *                            └── nothing to prove                              │ REACHABILITY comes back
 *                                        └──────────> agent_start_workers <────┘
 *
 * If the user gave the network, no node holds: the sample is tried while the workers start and run, and
 * a node that cannot be reached is a warning.
 *
 * A STOP ends the search at any time. If the server does not answer, the workers start after
 * AGENT_HOLD_MS. */
#include <errno.h>
#include <unistd.h>

#include "agent/node/agent_private.h"
#include "agent/postmortem/facts.h"

static void emit_found(const struct ct_start *start, const struct ct_addr *local)
{
    char addr[CT_ADDR_TEXT_MAX];

    ct_addr_format_host(addr, local);
    ct_event_emit("master_reached", CT_INT("generation", start->generation),
                  CT_INT("group_rank", start->group_rank),
                  CT_STR("master_addr", start->master_addr),
                  CT_STR("local_addr", addr));
}

/* Its callbacks come later, never before it returns. */
static void try_peers(struct agent *agent)
{
    const struct ct_start *start = &agent->start;

    for (int i = 0; i < start->peer_count; i++) {
        struct ct_addr addr;

        if (ct_addr_parse(start->peers[i].addr, start->peers[i].port, &addr) < 0)
            continue;
        if (ct_addr_is_link_local(&addr))
            addr.v6.sin6_scope_id = agent->local.v6.sin6_scope_id;
        reachability_find(agent->peers[i], &addr, 1, start->peers[i].host);
        agent->peers_missing++;
    }
}

/* Starts the workers, once a round: first cancels a search that still runs, so that no late answer starts them again.
 * `local`: NULL when it is not known. */
static void start(struct agent *agent, const struct ct_addr *local)
{
    agent_cancel_reachability(agent);
    if (agent->start.reach == CT_REACH_WARN)
        try_peers(agent);
    if (local)
        emit_found(&agent->start, local);
    if (agent->options->on_reachable)
        agent->options->on_reachable(agent->options->context, &agent->start, local);
    agent_start_workers(agent);
}

/* ---- Several networks -------------------------------------------------------------------- */

static void emit_cut(const struct agent *agent, const char *why)
{
    ct_event_emit("node_unreachable", CT_INT("generation", agent->start.generation),
                  CT_STR("master_addr", agent->start.master_addr),
                  CT_STR("reason", why));
}

/* The result counts for the whole round, also after a resume. */
void agent_send_reachability(struct agent *agent)
{
    if (agent->reachability_sent.generation == agent->start.generation)
        link_send(agent->link,
                  &(struct ct_message){CT_MESSAGE_REACHABILITY,
                                       .reachability = &agent->reachability_sent});
}

/* Sends the result to the server (`cut`: why group rank 0 or a peer cannot be reached, or "") and waits for its
 * REACHABILITY, for AGENT_HOLD_MS at most. */
static void hold(struct agent *agent, const char *cut)
{
    agent_cancel_reachability(agent);
    agent->is_held = true;
    agent->reachability_sent = (struct ct_reachability){
        .generation = agent->start.generation};
    (void)ct_format(agent->reachability_sent.cut, sizeof agent->reachability_sent.cut,
                    "%s", cut); /* cut is fine */
    if (*cut)
        emit_cut(agent, agent->reachability_sent.cut);
    agent_send_reachability(agent);
    loop_timer_set(agent->hold_timer, AGENT_HOLD_MS);
}

static void on_hold_over(void *context)
{
    struct agent *agent = context;

    ct_warn("the rendezvous did not confirm in %d s that all nodes reach each other: "
            "starting the workers",
            AGENT_HOLD_MS / 1000);
    start(agent, agent->local.length > 0 ? &agent->local : NULL);
}

/* All nodes reach the addresses that they have tried. Ignored if the message is of another round,
 * or if the workers no longer wait. */
void agent_on_reachability(struct agent *agent, const struct ct_reachability *theirs)
{
    if (!agent->is_held || theirs->generation != agent->start.generation)
        return;
    loop_timer_stop(agent->hold_timer);
    start(agent, agent->local.length > 0 ? &agent->local : NULL);
}

static void on_peer_found(void *context, const struct ct_addr *remote,
                          const struct ct_addr *local)
{
    struct agent *agent = context;

    (void)remote;
    (void)local;
    if (--agent->peers_missing == 0 && agent->start.reach == CT_REACH_PROVE)
        hold(agent, "");
}

static void on_peer_failed(void *context, const char *text, const char *tried)
{
    struct agent *agent = context;

    (void)tried; /* it has one address */
    if (agent->start.reach == CT_REACH_PROVE) {
        hold(agent, text);
        return;
    }
    emit_cut(agent, text);
    if (!*agent->unreachable)
        (void)ct_format(agent->unreachable, sizeof agent->unreachable, "%s %s",
                        agent->options->hello.host, text); /* cut is fine */
    ct_warn("%s %s; this network is used because the address %s was given: if workers "
            "hang, give an address of another network (ctrunctl doctor --net)",
            agent->options->hello.host, text, agent->start.master_addr);
}

static void find_peers(struct agent *agent)
{
    try_peers(agent);
    if (agent->peers_missing == 0)
        hold(agent, "");
}

/* ---- Group rank 0 ------------------------------------------------------------------------ */

/* Another address than that of START may work. If networks must be proven, that is a failure of the
 * network; otherwise this node's workers get the address that works. */
static void on_found(void *context, const struct ct_addr *remote,
                     const struct ct_addr *local)
{
    struct agent *agent = context;
    const struct ct_start *world = &agent->start;
    char found[CT_ADDR_TEXT_MAX], text[CT_HOST_MAX + 2 * CT_ADDR_TEXT_MAX + 64];
    const bool is_other = !ct_addr_is_same_host(remote, &agent->first_addr);

    ct_addr_format_host(found, remote);
    (void)ct_format(text, sizeof text, "cannot reach %s on %s, but can on %s",
                    world->master_host, world->master_addr, found);
    agent->local = *local;
    if (is_other && world->reach == CT_REACH_PROVE)
        hold(agent, text);
    memcpy(agent->start.master_addr, found, sizeof found);
    if (world->reach != CT_REACH_PROVE)
        start(agent, local);
    else if (!is_other)
        find_peers(agent);
}

/* "node2 -> 10.77.0.11:29400 (rendezvous)": shows that the network exists and is not a dead cable. */
static void add_what_works(const struct agent *agent, struct ct_failure *failure)
{
    struct ct_addr local, remote;
    char from[CT_ADDR_TEXT_MAX], to[CT_ADDR_TEXT_MAX];

    if (!link_get_ends(agent->link, &local, &remote))
        return;
    ct_addr_format_host(from, &local);
    ct_addr_format(to, &remote);
    facts_add(failure, CT_FACT_WORKS, "%s (%s) -> %s (rendezvous)",
              agent->options->hello.host, from, to);
}

static void on_failed(void *context, const char *text, const char *tried)
{
    struct agent *agent = context;
    struct ct_failure failure = {
        .generation = agent->start.generation,
        .cause = CT_CAUSE_UNREACHABLE,
        .may_loop = 1,
        .rank = -1,
        .local_rank = -1,
        .node_rank = (int32_t)agent->start.group_rank,
        .pid = getpid(),
        .restart_count = agent->start.restart_count,
        .wall_ns = ct_wall_ns(),
        .step = -1,
    };

    (void)ct_copy(failure.host, sizeof failure.host, agent->options->hello.host);
    (void)ct_copy(failure.text, sizeof failure.text, text); /* same size */
    if (*tried)
        facts_add(&failure, CT_FACT_TRIED, "%s", tried);
    add_what_works(agent, &failure);
    if (!agent_fails_outside(agent, &failure))
        agent_report_failure(agent, &failure);
}

/* The master's address was given as a name: that name is the rendezvous server's address. */
static bool is_by_name(const struct agent *agent)
{
    struct ct_addr addr;

    return agent->start.group_world_size > 1 &&
           ct_addr_parse(agent->start.master_addr, 0, &addr) < 0;
}

void agent_find_reachability(struct agent *agent)
{
    struct ct_addr list[REACHABILITY_ADDRS_MAX], local, remote;
    const bool has_ends = link_get_ends(agent->link, &local, &remote);
    const unsigned scope_id = has_ends && local.any.sa_family == AF_INET6
                                  ? local.v6.sin6_scope_id
                                  : 0;
    const int count = reachability_list(list, &agent->start, scope_id);

    agent_cancel_reachability(agent);
    if (agent->start.reach == CT_REACH_NONE_REACHES_ALL && agent->start.group_rank == 0)
        ct_warn("on each network of %s some node could not reach another: the first "
                "network is used; if workers hang, open its ports or choose another "
                "one (--net)",
                agent->start.master_host);
    if (count > 0) {
        agent->first_addr = list[0];
        reachability_find(agent->reachability, list, count, agent->start.master_host);
    } else if (agent->start.reach == CT_REACH_PROVE) {
        agent->local = (struct ct_addr){0}; /* link-local, interface not known */
        hold(agent, "");
    } else {
        start(agent, has_ends && is_by_name(agent) && !ct_addr_is_loopback(&local)
                         ? &local
                         : NULL);
    }
}

int agent_open_reachability(struct agent *agent, struct ctrun_error *err)
{
    struct reachability_options options = {
        .loop = agent->loop,
        .context = agent,
        .may_refuse = agent->options->master_may_refuse,
        .on_found = on_found,
        .on_failed = on_failed,
    };
    int rc = reachability_open(&agent->reachability, &options);

    options.may_refuse = true;
    options.passes = 2;
    options.on_found = on_peer_found;
    options.on_failed = on_peer_failed;
    for (int i = 0; rc == 0 && i < CT_START_PEERS_MAX; i++)
        rc = reachability_open(&agent->peers[i], &options);
    if (rc == 0 &&
        !(agent->hold_timer = loop_timer_open(agent->loop, on_hold_over, agent)))
        rc = -ENOMEM;
    return rc < 0 ? ct_fail(err, -ENOMEM, "agent: out of memory") : 0;
}

void agent_close_reachability(struct agent *agent)
{
    reachability_close(agent->reachability);
    for (int i = 0; i < CT_START_PEERS_MAX; i++)
        reachability_close(agent->peers[i]);
    loop_timer_close(agent->hold_timer);
}
