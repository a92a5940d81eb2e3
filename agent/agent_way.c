/* SPDX-License-Identifier: Apache-2.0 */
/* Before workers start: the address of group rank 0 that works from this node. */
#include <errno.h>
#include <unistd.h>

#include "agent/agent_private.h"

static void emit_way(const struct ct_start *start, const struct ct_addr *local)
{
    struct ct_event event;
    char addr[CT_ADDR_TEXT_MAX];

    ct_addr_format_host(addr, local);
    ct_event_begin(&event, "way_found");
    ct_event_int(&event, "generation", (int64_t)start->generation);
    ct_event_int(&event, "group_rank", start->group_rank);
    ct_event_str(&event, "master_addr", start->master_addr);
    ct_event_str(&event, "local_addr", addr);
    ct_event_end(&event);
}

static void start(struct agent *agent, const struct ct_addr *local)
{
    if (local)
        emit_way(&agent->start, local);
    if (agent->options->on_way)
        agent->options->on_way(agent->options->context, &agent->start, local);
    agent_start_workers(agent);
}

static void on_found(void *context, const struct ct_addr *remote,
                     const struct ct_addr *local)
{
    struct agent *agent = context;

    ct_addr_format_host(agent->start.master_addr, remote);
    start(agent, local);
}

/* "works: node2 -> 10.77.0.11:29400 (rendezvous)": a network that is there is no dead cable. */
static void add_what_works(const struct agent *agent, char *text, size_t size)
{
    struct ct_addr local, remote;
    char from[CT_ADDR_TEXT_MAX], to[CT_ADDR_TEXT_MAX];
    const size_t used = strlen(text);

    if (!link_get_ends(agent->link, &local, &remote))
        return;
    ct_addr_format_host(from, &local);
    ct_addr_format(to, &remote);
    (void)ct_format(text + used, size - used, "\nworks: %s (%s) -> %s (rendezvous)",
                    agent->options->hello.host, from, to); /* cut is fine */
}

static void on_failed(void *context, const char *text)
{
    struct agent *agent = context;
    struct ct_failure failure = {
        .generation = agent->start.generation,
        .cause = CT_CAUSE_UNREACHABLE,
        .is_early = 1,
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
    add_what_works(agent, failure.text, sizeof failure.text);
    agent_tell_failure(agent, &failure);
}

/* A name was typed as the master's address: it is where the rendezvous is. */
static bool is_by_name(const struct agent *agent)
{
    struct ct_addr addr;

    return agent->start.group_world_size > 1 &&
           ct_addr_parse(agent->start.master_addr, 0, &addr) < 0;
}

void agent_find_way(struct agent *agent)
{
    struct ct_addr list[WAY_ADDRS_MAX], local, remote;
    const bool has_ends = link_get_ends(agent->link, &local, &remote);
    const unsigned scope_id = has_ends && local.any.sa_family == AF_INET6
                                  ? local.v6.sin6_scope_id
                                  : 0;
    const int count = way_list(list, &agent->start, scope_id);

    if (count > 0)
        way_find(agent->way, list, count, agent->start.master_host);
    else
        start(agent, has_ends && is_by_name(agent) && !ct_addr_is_loopback(&local)
                         ? &local
                         : NULL);
}

int agent_open_way(struct agent *agent, struct ctrun_error *err)
{
    const struct way_options options = {
        .loop = agent->loop,
        .context = agent,
        .on_found = on_found,
        .on_failed = on_failed,
    };

    return way_open(&agent->way, &options) < 0
               ? ct_fail(err, -ENOMEM, "agent: out of memory")
               : 0;
}
