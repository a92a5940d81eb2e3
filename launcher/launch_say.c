/* SPDX-License-Identifier: Apache-2.0 */
/* What people hear while a run goes on. */
#include <stdlib.h>
#include <string.h>

#include "launcher/launch_private.h"
#include "launcher/messages.h"
#include "launcher/nested.h"
#include "launcher/say_end.h"
#include "launcher/say_signal.h"
#include "launcher/say_start.h"
#include "launcher/seat.h"
#include "launcher/sender.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    SAY_EVERY_MS = 10000
};

static void on_connecting(void *context, const char *why, uint64_t waited_ms)
{
    struct launch *launch = context;
    char own[256];

    if (launch->candidacy) {
        messages_say("waiting %llu s: no node is the host of run '%s' that can be "
                     "reached: %s",
                     (unsigned long long)(waited_ms / 1000), launch->config->run_id,
                     why);
        return;
    }
    messages_say("waiting %llu s: no rendezvous at %s port %d: %s",
                 (unsigned long long)(waited_ms / 1000), launch->config->endpoint.host,
                 launch->config->endpoint.port, why);
    if (launch->has_said_own || launch->hosts.is_mine)
        return;
    launch->has_said_own = true;
    hosts_format_own(own, sizeof own);
    messages_say("this node, %s, does not own that address; it has %s",
                 launch->config->host, own);
}

static void on_break(void *context, const char *why, uint64_t left_ms)
{
    (void)context;
    messages_say("%s; the workers go on, and it has %.1f s to come back", why,
                 (double)left_ms / 1000);
}

static void on_back(void *context)
{
    (void)context;
    messages_say("the rendezvous is back: nothing was lost");
}

/* Once a run, by the node that serves: who waits for the others knows at once what for. */
static void say_place(struct launch *launch, const struct ct_waiting *waiting)
{
    if (launch->has_said_place || !launch->hosts_rendezvous || seat_get()->is_given ||
        waiting->joined >= waiting->min_nodes)
        return;
    launch->has_said_place = true;
    messages_say("run '%s': %u of %u nodes are here, they meet at %s port %d",
                 launch->config->run_id, waiting->joined, waiting->min_nodes,
                 launch->config->endpoint.host, ct_addr_port(&launch->hosts.addrs[0]));
}

static void on_waiting(void *context, const struct ct_waiting *waiting,
                       uint64_t waited_ms)
{
    struct launch *launch = context;
    char text[CT_MISSING_MAX + 128];

    launch->waiting = *waiting;
    launch->waited_ms = waited_ms;
    say_place(launch, waiting);
    if (waited_ms < launch->said_ms) /* a new round waits from zero */
        launch->said_ms = 0;
    if (!waiting->is_standby && waited_ms - launch->said_ms < SAY_EVERY_MS)
        return;
    launch->said_ms = waited_ms;
    if (launch->config->task.is_quiet)
        return;
    messages_format_waiting(text, sizeof text, waiting, waited_ms);
    messages_say("%s", text);
    if (waiting->joined < waiting->min_nodes &&
        hosts_format_loopback_hint(text, sizeof text, &launch->hosts, launch->config) >
            0)
        messages_say("warning[E_LOOPBACK]: %s", text);
}

/* Once, unless it changes. */
static void on_way(void *context, const struct ct_start *start,
                   const struct ct_addr *local)
{
    struct launch *launch = context;
    char text[256];

    (void)start;
    route_learn(&launch->route, local);
    if (!route_format(text, sizeof text, &launch->route, launch->config) ||
        strcmp(launch->said_route, launch->route.addr) == 0)
        return;
    (void)ct_copy(launch->said_route, sizeof launch->said_route, launch->route.addr);
    if (!launch->config->task.is_quiet)
        messages_say("%s", text);
}

/* Once, and on one node: the others chose in the same way. */
static void say_omp(struct launch *launch, const struct ct_start *start)
{
    const struct placement *placement = &launch->config->placement;
    char text[256];

    if (!placement->says_omp || launch->has_said_omp)
        return;
    launch->has_said_omp = true;
    (void)ct_format(text, sizeof text,
                    "OMP_NUM_THREADS=%d: %d core%s for %d workers; set it, or pass "
                    "--omp-threads=N",
                    placement->omp_threads, placement->cores,
                    placement->cores == 1 ? "" : "s",
                    launch->config->task.is_rank ? launch->config->task.local_count
                                                 : launch->config->nproc);
    if (start->group_rank == 0)
        messages_say("%s", text);
    else
        ct_info("%s", text);
}

/* Worlds may shrink: whoever types sees why nothing answers. */
static void say_input(const struct launch *launch, const struct ct_start *start)
{
    const int rank = launch->config->stdin_rank;

    if (rank >= 0 && (uint32_t)rank >= start->world_size && start->group_rank == 0)
        messages_say("warning: --stdin=%d: this round has ranks 0 to %u: nobody reads "
                     "standard input",
                     rank, start->world_size - 1);
}

static void on_leftovers(void *context, const char *processes)
{
    struct launch *launch = context;

    free(launch->leftovers);
    launch->leftovers = ct_strdup(processes);
}

void launch_say_leftovers(struct launch *launch)
{
    if (launch->leftovers)
        messages_say("warning: killed what workers had left behind: %s",
                     launch->leftovers);
    free(launch->leftovers);
    launch->leftovers = NULL;
}

static void on_start(void *context, const struct ct_start *start)
{
    struct launch *launch = context;
    unsigned last = (unsigned)launch->config->nproc - 1;
    struct ct_role_at role;

    launch_say_leftovers(launch);
    role_restarts_begin_round(&launch->role_restarts);
    say_start(launch->config, start, launch->said_layout);
    say_omp(launch, start);
    say_input(launch, start);
    if (launch->has_returned)
        messages_say("rejoined as node %u of %u", start->group_rank,
                     start->group_world_size);
    launch->has_returned = false;
    config_role_at(&role, launch->config, start, 0); /* the first of them speaks */
    ct_info(
        "round started restart_count=%u master_addr=%s master_port=%d group_rank=%u "
        "group_world_size=%u local_ranks=0-%u role_ranks=%u-%u global_ranks=%u-%u "
        "role_world_size=%u global_world_size=%u",
        start->restart_count, start->master_addr, start->master_port, start->group_rank,
        start->group_world_size, last, role.rank,
        role.rank + (launch->config->roles.count > 0
                         ? launch->config->roles.list[0].slots - 1
                         : last),
        start->rank_base, start->rank_base + last, role.world_size, start->world_size);
    torch_events_round(&launch->torch_events, start);
    seat_tell_started();
}

/* A line that the server has added to the cause, for everybody. */
static void say_excluded(const struct ct_stop *stop)
{
    static const char label[] = "excluded\t";
    const char *found = strstr(stop->cause.facts, label);

    if (!found)
        return;
    found += sizeof label - 1;
    messages_say("%.*s", (int)strcspn(found, "\n"), found);
}

static void on_stop(void *context, const struct ct_stop *stop)
{
    struct launch *launch = context;
    const bool is_quiet = launch->config->task.is_quiet;
    char text[1024];

    why_take(&launch->why, stop);
    torch_events_round_over(&launch->torch_events);
    messages_format_stop(text, sizeof text, stop);
    if (!stop->is_final && stop->reason != CT_STOP_UNDECIDED && !is_quiet)
        messages_say("%s", text);
    else
        ct_info("%s", text); /* a second STOP or the summary says it better */
    if (!is_quiet)
        say_excluded(stop);
}

/* With --hosts it is said where the signal came from, not here. */
static void on_signal(void *context, int signal, pid_t sender, bool is_ending,
                      int interrupts)
{
    struct launch *launch = context;
    char text[SENDER_TEXT_MAX];

    if (is_ending)
        sender_describe(text, signal, sender, interrupts);
    else
        sender_describe_passed(text, signal, sender);
    if (!seat_get()->is_given)
        say_signal(launch->config, text, signal, sender,
                   is_ending && !launch->is_ending);
    launch->is_ending |= is_ending;
}

static void why(void *context, char *dst, size_t size)
{
    const struct launch *launch = context;
    struct messages_block block;

    why_format(&block, &launch->why, launch->config->program.name,
               launch->config->run_id);
    (void)ct_copy(dst, size, block.text);
}

static void on_countdown(void *context, uint64_t left_ms)
{
    if (!seat_get()->is_given)
        say_signal_left(((struct launch *)context)->config, left_ms);
}

static void on_allocation_end(void *context, const struct agent_ending *ending)
{
    struct launch *launch = context;

    say_end_near(launch->config, ending);
    launch->is_ending |= ending->is_ending;
}

static void on_left_out(void *context, int rank, uint64_t lines, uint64_t bytes)
{
    const struct launch *launch = context;
    struct ct_event event;

    ct_event_begin(&event, "output_left_out");
    ct_event_int(&event, "rank", rank);
    ct_event_int(&event, "lines", (int64_t)lines);
    ct_event_int(&event, "bytes", (int64_t)bytes);
    ct_event_end(&event);
    messages_say("rank %d: %llu line%s of %llu bytes not shown: more than %llu bytes a "
                 "second (--log-rate-limit)",
                 rank, (unsigned long long)lines, lines == 1 ? "" : "s",
                 (unsigned long long)bytes,
                 (unsigned long long)launch->config->rate_limit);
}

static void on_resize(void *context, const struct ct_resize *resize)
{
    (void)context;
    messages_say("the run may have %u to %u nodes now (asked on %s)", resize->min_nodes,
                 resize->max_nodes, resize->by);
}

static void on_lost(void *context, const struct ctrun_error *why,
                    uint64_t looked_for_ms)
{
    (void)context;
    messages_say("lost the rendezvous: %s; workers stopped, looking for it for %llu s",
                 why->text, (unsigned long long)looked_for_ms / 1000);
}

static void on_returned(void *context)
{
    struct launch *launch = context;

    launch->has_returned = true;
    messages_say("the rendezvous is back: rejoining");
}

static void on_heir(void *context, const struct ctrun_error *why, const char *host,
                    const struct ct_roster_node *heir, bool is_self)
{
    struct launch *launch = context;

    launch->has_returned = true;
    messages_say("error[E_LEADER_LOST]: %s, which hosted the rendezvous, is lost: %s; "
                 "standby %s%s takes over at %s port %d, a new round follows",
                 host, why->text, heir->host, is_self ? " (this node)" : "",
                 heir->addr_count > 0 ? heir->addrs[0] : "?", heir->port);
}

static void on_worker_started(void *context, int local_rank, int pid)
{
    struct launch *launch = context;

    torch_events_worker_started(&launch->torch_events, local_rank, pid);
}

static void on_worker_ended(void *context, const struct ct_failure *end)
{
    struct launch *launch = context;

    torch_events_worker_ended(&launch->torch_events, end);
}

void launch_fill_words(struct agent_options *options)
{
    options->on_connecting = on_connecting;
    options->on_break = on_break;
    options->on_back = on_back;
    options->on_waiting = on_waiting;
    options->on_way = on_way;
    options->on_start = on_start;
    options->on_leftovers = on_leftovers;
    options->on_stop = on_stop;
    options->on_signal = on_signal;
    options->why = why;
    options->on_countdown = on_countdown;
    options->on_allocation_end = on_allocation_end;
    options->on_worker_started = on_worker_started;
    options->on_left_out = on_left_out;
    options->on_resize = on_resize;
    options->on_lost = on_lost;
    options->on_returned = on_returned;
    options->on_heir = on_heir;
    options->on_worker_ended = on_worker_ended;
}

/* By one node: the others chose in the same way, and --dry-run tells of each. */
static void say_nics(const struct config *config)
{
    char text[NIC_HINTS_TEXT_MAX];

    if (!config->nics.sets_env || !nic_hints_format(text, &config->nics))
        return;
    if (config->node_rank <= 0)
        messages_say("%s", text);
    else
        ct_info("%s", text);
}

void launch_say_beginning(const struct config *config)
{
    char text[NESTED_TEXT_MAX];

    if (*nested_format(text, sizeof text, config->env))
        messages_say("%s", text);
    say_nics(config);
    if (config->requeues && config->node_rank <= 0)
        messages_say("%s has requeued this job %u time%s", config->batch_system,
                     config->requeues, config->requeues > 1 ? "s" : "");
    say_end_beginning(config);
}
