/* SPDX-License-Identifier: Apache-2.0 */
/* Prints notices for people while a run goes on. */
#include <errno.h>

#include "agent/hold/hold.h"
#include "agent/loop/limits.h"
#include "agent/watch/own_ranks.h"
#include "launcher/batch/nested.h"
#include "launcher/config/host_slot.h"
#include "launcher/report/messages.h"
#include "launcher/report/signal_sender.h"
#include "launcher/run/launch_private.h"
#include "launcher/run/notice_end.h"
#include "launcher/run/notice_signal.h"
#include "launcher/run/notice_start.h"
#include "rendezvous/net/port_owner.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/log.h"
#include "worker_sdk/base/str.h"

enum {
    NOTICE_EVERY_MS = 10000
};

/* All callbacks here run on the agent's loop: they print and record, and must not block. */
static void on_connecting(void *context, const struct ctrun_error *error,
                          uint64_t waited_ms)
{
    struct launch *launch = context;
    const char *why = error->text;
    char own[256];

    if (launch->candidate) {
        messages_notice(
            "waiting %llu s: no rendezvous server of run '%s' can be reached yet: %s",
            (unsigned long long)(waited_ms / 1000), launch->config->run.run_id, why);
        return;
    }
    messages_notice(
        "waiting %llu s for the rendezvous at %s port %d%s: %s",
        (unsigned long long)(waited_ms / 1000), launch->config->rdzv.endpoint.host,
        launch->config->rdzv.endpoint.port,
        launch->config->rdzv.place_count > 1 ? " or at this run's other ports" : "",
        why);
    if (launch->has_noticed_own || launch->endpoint.is_mine || error->code == -EXFULL)
        return;
    launch->has_noticed_own = true;
    rdzv_endpoint_format_own(own, sizeof own);
    messages_notice("this node, %s, does not own that address; it has %s",
                    launch->config->run.host, own);
}

static void on_break(void *context, const char *why, bool runs, uint64_t left_ms)
{
    (void)context;
    messages_notice("%s; %sreconnecting for up to %.1f s", why,
                    runs ? "the workers keep running, " : "", (double)left_ms / 1000);
}

static void on_back(void *context, bool keeps_workers)
{
    (void)context;
    messages_notice("the rendezvous is back%s",
                    keeps_workers ? ": nothing was lost" : "");
}

/* What has joined, where waiting->joined is a number of them. */
static const char *unit(const struct launch *launch)
{
    return messages_unit(launch->config->run.expected_tasks);
}

/* Printed once a run, by the serving node, at once: it says how many nodes have joined, and
 * where. */
static void notice_place(struct launch *launch, const struct ct_waiting *waiting)
{
    if (launch->has_noticed_place || !launch->serves_rendezvous ||
        host_slot_get()->is_given || waiting->joined >= waiting->min_nodes)
        return;
    launch->has_noticed_place = true;
    messages_notice("run '%s': %u of %u %s have joined; they meet at %s port %d",
                    launch->config->run.run_id, waiting->joined, waiting->min_nodes,
                    unit(launch), launch->config->rdzv.endpoint.host,
                    ct_addr_port(&launch->endpoint.addrs[0]));
}

/* Printed once a round, when enough nodes have joined: then no other line explains the wait. */
static void notice_held(struct launch *launch, const struct ct_waiting *waiting)
{
    const bool is_due = waiting->held_ms > 0 && waiting->joined >= waiting->min_nodes;

    if (is_due && !launch->has_noticed_held && !launch->config->run.task.is_quiet)
        messages_notice(
            "enough %s have joined (%u); workers start in up to %.1f s, because %s",
            unit(launch), waiting->joined, (double)waiting->held_ms / 1000,
            messages_why_held(launch->group_rank >= 0 || waiting->missing[0]));
    launch->has_noticed_held |= is_due;
}

static void on_waiting(void *context, const struct ct_waiting *waiting,
                       uint64_t waited_ms)
{
    struct launch *launch = context;
    char text[CT_MISSING_MAX + 192];

    launch->waiting = *waiting;
    launch->waited_ms = waited_ms;
    notice_place(launch, waiting);
    notice_held(launch, waiting);
    if (waited_ms < launch->printed_ms) /* a new round: waited_ms restarts at 0 */
        launch->printed_ms = 0;
    if (!waiting->is_spare && waited_ms - launch->printed_ms < NOTICE_EVERY_MS)
        return;
    launch->printed_ms = waited_ms;
    if (launch->config->run.task.is_quiet)
        return;
    messages_format_waiting(text, sizeof text, waiting,
                            launch->config->run.expected_tasks != NULL, waited_ms);
    messages_notice("%s%s%s", waiting->is_spare ? launch->config->run.host : "",
                    waiting->is_spare ? ": " : "", text);
    if (!launch->has_noticed_loopback && waiting->joined < waiting->min_nodes &&
        rdzv_endpoint_format_loopback_hint(text, sizeof text, &launch->endpoint,
                                           launch->config) > 0) {
        launch->has_noticed_loopback = true;
        messages_warn(CTRUN_E_LOOPBACK, "%s", text);
    }
}

/* Printed once a run, and again when the route changes. */
static void on_reachable(void *context, const struct ct_start *start,
                         const struct ct_addr *local)
{
    struct launch *launch = context;
    char text[256];

    route_learn(&launch->route, local);
    if (!route_format(text, sizeof text, &launch->route, launch->config) ||
        strcmp(launch->printed_route, launch->route.addr) == 0)
        return;
    (void)ct_copy(launch->printed_route, sizeof launch->printed_route,
                  launch->route.addr);
    if (start->group_rank == 0 && !launch->config->run.task.is_quiet)
        messages_notice("%s", text);
    else
        ct_info("%s", text); /* mostly the same route as node 0's */
}

/* Logged once: the value is the same in every round. */
static void log_omp(struct launch *launch)
{
    const struct placement *placement = &launch->config->work.placement;
    const bool is_limited = placement->quota > 0 && placement->quota < placement->cores;

    if (!placement->sets_omp || launch->has_logged_omp)
        return;
    launch->has_logged_omp = true;
    ct_info("OMP_NUM_THREADS=%d: %d %s%s for %d workers; set it, or pass "
            "--omp-threads=N",
            placement->omp_threads, is_limited ? placement->quota : placement->cores,
            is_limited ? "CPU" : "core",
            (is_limited ? placement->quota : placement->cores) == 1 ? "" : "s",
            launch->config->run.task.is_rank ? launch->config->run.task.local_count
                                             : launch->config->run.nproc);
}

/* The world may have shrunk: says why nothing reads what the user types. */
static void warn_input(const struct launch *launch, const struct ct_start *start)
{
    const int rank = launch->config->output.stdin_rank;

    if (rank >= 0 && (uint32_t)rank >= start->world_size && start->group_rank == 0)
        messages_warn(
            0, "--stdin=%d: this round has ranks 0 to %u: no rank reads standard input",
            rank, start->world_size - 1);
}

/* The first node of the world prints it, so that it is printed once. */
static void warn_jax(const struct launch *launch, const struct ct_start *start)
{
    if (launch->config->work.lacks_jax && start->group_rank == 0)
        messages_warn(
            0,
            "%s calls jax.distributed.initialize() without arguments: without --jax "
            "this fails, or makes each worker a world of its own where Slurm or Open "
            "MPI is found; add --jax (CTRUN_JAX=0 ends this warning)",
            launch->program->args[0]);
}

static void on_orphans(void *context, const char *processes)
{
    struct launch *launch = context;

    free(launch->orphans);
    /* Kept, and printed after the first cause: orphans are a consequence of that failure. */
    launch->orphans = ct_strdup(processes);
}

void launch_notice_orphans(struct launch *launch)
{
    if (launch->orphans)
        messages_warn(0, "killed processes that workers left behind: %s",
                      launch->orphans);
    free(launch->orphans);
    launch->orphans = NULL;
}

static void on_start(void *context, const struct ct_start *start)
{
    struct launch *launch = context;
    unsigned last = (unsigned)launch->config->run.nproc - 1;
    const bool is_first = launch->group_rank < 0;
    struct ct_role_at role;

    launch_use_reload(launch);
    launch->group_rank = (int)start->group_rank;
    launch->is_one_of_many = start->group_world_size > 1;
    launch->has_noticed_held = false;
    launch_notice_orphans(launch);
    role_restarts_begin_round(&launch->role_restarts);
    notice_start(launch->config, start, is_first, launch->printed_layout);
    log_omp(launch);
    warn_input(launch, start);
    if (is_first)
        warn_jax(launch, start);
    if (launch->has_returned)
        messages_notice("rejoined as node %u of %u", start->group_rank,
                        start->group_world_size);
    launch->has_returned = false;
    config_role_at(&role, launch->config, start, 0); /* of the first local worker */
    ct_info(
        "round started restart_count=%u master_addr=%s master_port=%d group_rank=%u "
        "group_world_size=%u local_ranks=0-%u role_ranks=%u-%u global_ranks=%u-%u "
        "role_world_size=%u global_world_size=%u",
        start->restart_count, start->master_addr, start->master_port, start->group_rank,
        start->group_world_size, last, role.rank,
        role.rank + (launch->config->run.roles.count > 0
                         ? launch->config->run.roles.list[0].slots - 1
                         : last),
        start->rank_base, start->rank_base + last, role.world_size, start->world_size);
    torch_events_round(&launch->torch_events, start);
    host_slot_send_started();
}

static void on_no_steps(void *context)
{
    const struct launch *launch = context;
    char text[256];

    (void)ct_format(text, sizeof text,
                    "--hang-timeout=%llu watches nothing yet: no worker has "
                    "called ctrun_step(), and none runs a Python whose stacks can be "
                    "read",
                    (unsigned long long)launch->config->stop.hang_timeout_ms / 1000);
    if (launch->group_rank == 0 && !launch->config->run.task.is_quiet)
        messages_warn(0, "%s", text);
    else
        ct_info("warning: %s", text);
}

static void on_stop(void *context, const struct ct_stop *stop)
{
    struct launch *launch = context;
    const bool is_quiet = launch->config->run.task.is_quiet;
    char text[1024];

    last_failure_set(&launch->why, stop);
    past_failures_add(&launch->past, stop);
    torch_events_round_over(&launch->torch_events);
    messages_format_stop(text, sizeof text, stop);
    if (!stop->is_final && stop->reason != CT_STOP_UNDECIDED && !is_quiet)
        messages_print_line(stop->reason == CT_STOP_NODE_LOST ? MESSAGES_WARNING
                                                              : MESSAGES_NEWS,
                            "%s", text);
    else
        ct_info("%s", text); /* another STOP or the summary follows */
    if (!is_quiet && !stop->is_final &&
        ct_facts_find(&stop->cause.facts, CT_FACT_AGAIN))
        messages_warn(0, "%s", ct_facts_find(&stop->cause.facts, CT_FACT_AGAIN));
    if (!is_quiet && messages_format_culprit(text, sizeof text, stop))
        messages_notice("%s", text);
}

/* With --hosts the process that got the signal (ssh_root.c) prints the notice, not the nodes. */
static void on_signal(void *context, int signal, pid_t sender, bool is_ending,
                      int interrupts)
{
    struct launch *launch = context;
    char text[SIGNAL_SENDER_TEXT_MAX];

    if (is_ending)
        signal_sender_describe(text, signal, sender, interrupts);
    else
        signal_sender_describe_passed(text, signal, sender);
    if (!host_slot_get()->is_given)
        notice_signal(launch->config, text, signal, sender,
                      is_ending && !launch->is_ending);
    launch->is_ending |= is_ending;
}

static void why(void *context, char *dst, size_t size)
{
    const struct launch *launch = context;
    struct messages_block block;

    last_failure_format(&block, &launch->why, launch->config->work.program.name,
                        launch->config->run.run_id);
    (void)ct_copy(dst, size, block.text);
}

static void on_countdown(void *context, uint64_t left_ms)
{
    if (!host_slot_get()->is_given)
        notice_signal_left(((struct launch *)context)->config, left_ms);
}

static void on_allocation_end(void *context, const struct agent_ending *ending)
{
    struct launch *launch = context;

    notice_end_near(launch->config, ending);
    launch->is_ending |= ending->is_ending;
}

static void on_left_out(void *context, int rank, uint64_t lines, uint64_t bytes)
{
    const struct launch *launch = context;

    ct_event_emit("output_left_out", CT_INT("rank", rank), CT_INT("lines", lines),
                  CT_INT("bytes", bytes));
    messages_notice(
        "rank %d: %llu line%s of %llu bytes not shown: more than %llu bytes a "
        "second (--log-rate-limit)",
        rank, (unsigned long long)lines, lines == 1 ? "" : "s",
        (unsigned long long)bytes,
        (unsigned long long)launch->config->output.rate_limit);
}

static void on_resize(void *context, const struct ct_resize *resize)
{
    messages_notice("the run may have %u to %u %s now%s%s%s", resize->min_nodes,
                    resize->max_nodes, unit(context), *resize->by ? " (asked on " : "",
                    resize->by, *resize->by ? ")" : "");
}

static void on_lost(void *context, const struct ctrun_error *why,
                    uint64_t looked_for_ms)
{
    (void)context;
    if (looked_for_ms == 0)
        messages_notice("lost the rendezvous: %s; no other was found, workers stopped",
                        why->text);
    else
        messages_notice(
            "lost the rendezvous: %s; workers stopped, looking for it for %.1f s",
            why->text, (double)looked_for_ms / 1000);
}

static void on_awaited(void *context, const struct ctrun_error *why, uint64_t left_ms)
{
    char span[MESSAGES_SPAN_MAX];

    (void)context;
    messages_format_span(span, left_ms);
    messages_notice("lost the rendezvous: %s; no worker has started: looking for it "
                    "for up to %s (join_timeout)",
                    why->text, span);
}

static void on_returned(void *context)
{
    struct launch *launch = context;

    launch->has_returned = true;
    messages_notice("the rendezvous is back: rejoining");
}

static void on_rank_lost(void *context, const struct ct_failure *failure, int left)
{
    const struct launch *launch = context;
    char what[256];

    messages_format_cause(what, sizeof what, failure);
    messages_notice("rank %d %s: %d rank%s may continue (--survive), within %llu s",
                    failure->rank, what, left, left == 1 ? "" : "s",
                    (unsigned long long)launch->config->stop.survive_ms / 1000);
}

static void on_node_lost(void *context, const char *text, int left)
{
    const struct launch *launch = context;

    messages_notice(
        "%s: %d rank%s may continue (--survive), within %llu s of the end of its "
        "workers",
        text, left, left == 1 ? "" : "s",
        (unsigned long long)launch->config->stop.survive_ms / 1000);
}

static void on_shrunk(void *context, int left, int64_t after_ms)
{
    const char *what = left == 1 ? " continues" : "s continue";

    (void)context;
    if (after_ms < 0)
        messages_notice("%d rank%s", left, what);
    else
        messages_notice("%d rank%s, %.3f s after the loss", left, what,
                        (double)after_ms / 1000);
}

static void on_replacing(void *context, const struct ct_failure *failure,
                         uint32_t count)
{
    const struct launch *launch = context;

    messages_notice("rank %d is started again, %u of %u: it joins the others when it "
                    "is ready (--survive-replace)",
                    failure->rank, count, launch->config->stop.survive_replace);
}

static void on_grown(void *context, int joined, int size)
{
    (void)context;
    messages_notice("%d rank%s added: %d continue", joined, joined == 1 ? "" : "s",
                    size);
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
    if (!launch->is_ending || end->cause != CT_CAUSE_STOPPED ||
        end->end_code != -SIGKILL)
        return;
    killed_ranks_add(&launch->killed, end->rank);
}

/* True when nothing listens at `port` on this machine. */
static bool is_port_free(int port)
{
    char owner[PORT_OWNER_TEXT_MAX];

    return port > 0 && port_owner_describe(port, owner) == -ENOENT;
}

/* Each node draws a random delay of its own; the restart begins after the longest one. */
static void on_delay(void *context, uint64_t delay_ms, uint32_t failures)
{
    const struct launch *launch = context;
    char text[160];

    (void)ct_format(text, sizeof text,
                    "waiting %.1f s before the restart (--restart-delay): %u failure%s "
                    "without progress",
                    (double)delay_ms / 1000, failures, failures == 1 ? "" : "s");
    if (launch->group_rank == 0 && !launch->config->run.task.is_quiet)
        messages_notice("%s", text);
    else
        ct_info("%s", text);
}

/* A save that succeeds is not printed, as a worker's own save is not, unless the worker has
 * ended. */
static void on_held(void *context, const struct hold_end *end)
{
    const bool is_small = end->bytes < 1 << 20;
    char size[32];

    (void)context;
    (void)ct_format(size, sizeof size, is_small ? "%.0f bytes" : "%.1f MiB",
                    (double)end->bytes / (is_small ? 1 : 1 << 20));
    if (end->why)
        messages_warn(
            end->why->code,
            "rank %d: its checkpoint %s (%s) was committed to memory and "
            "is not on the disk: %s; the file that was there before is unchanged",
            end->rank, end->path, size, end->why->text);
    else if (end->is_left)
        messages_notice("rank %d has ended; its checkpoint %s (%s) was written from "
                        "memory, %.1f s after it was committed",
                        end->rank, end->path, size, (double)end->took_ms / 1000);
}

static void on_saving(void *context, uint64_t limit_ms)
{
    (void)context;
    host_slot_send_saving(limit_ms);
}

static void on_own_ranks(void *context, int rank, const struct own_ranks *found)
{
    char other[512] = "";

    (void)context;
    if (*found->theirs)
        (void)ct_format(other, sizeof other,
                        ": pid %d has %s; ctrun gave its worker %s", (int)found->first,
                        found->theirs, found->ours);
    if (is_port_free(found->port))
        (void)ct_append(other, sizeof other, "; nothing listens at port %d here",
                        found->port);
    messages_warn(0,
                  "the worker store has had no request for %d s, and rank %d has "
                  "started %d process%s of its own, which use no CPU now%s. If these "
                  "are its ranks: let ctrun start them (--nproc-per-node=%d, no spawn "
                  "in the script), or run the script without ctrun",
                  OWN_RANKS_MS / 1000, rank, found->count, found->count > 1 ? "es" : "",
                  other, found->count);
}

static void on_absent(void *context, const struct agent_absent *absent)
{
    (void)context;
    messages_notice(
        "%u of %u ranks have connected to the worker store, and no other in the "
        "last %d s; not yet: %s",
        absent->connected, absent->world_size, AGENT_ABSENT_MS / 1000, absent->text);
}

static void on_early(void *context, int rank, uint64_t ago_ms, int running)
{
    (void)context;
    messages_notice(
        "rank %d ended with 0 %llu s ago; %d rank%s of this node still run%s", rank,
        (unsigned long long)ago_ms / 1000, running, running == 1 ? "" : "s",
        running == 1 ? "s" : "");
}

void launch_fill_words(struct agent_options *options)
{
    options->on_connecting = on_connecting;
    options->on_break = on_break;
    options->on_back = on_back;
    options->on_waiting = on_waiting;
    options->on_reachable = on_reachable;
    options->on_start = on_start;
    options->on_no_steps = on_no_steps;
    options->workers.on_orphans = on_orphans;
    options->on_stop = on_stop;
    options->on_bill = launch_on_bill;
    options->on_delay = on_delay;
    options->on_signal = on_signal;
    options->why = why;
    options->on_countdown = on_countdown;
    options->on_allocation_end = on_allocation_end;
    options->workers.on_worker_started = on_worker_started;
    options->workers.on_left_out = on_left_out;
    options->on_own_ranks = on_own_ranks;
    options->on_absent = on_absent;
    options->on_early = on_early;
    options->on_rank_lost = on_rank_lost;
    options->on_node_lost = on_node_lost;
    options->on_replacing = on_replacing;
    options->on_grown = on_grown;
    options->on_shrunk = on_shrunk;
    options->on_held = on_held;
    options->on_saving = on_saving;
    options->on_resize = on_resize;
    options->on_lost = on_lost;
    options->on_awaited = on_awaited;
    options->on_returned = on_returned;
    options->workers.on_worker_ended = on_worker_ended;
}

/* Printed by one node: the other nodes choose in the same way, and --dry-run shows each worker. */
static void notice_nics(const struct config *config)
{
    char text[NIC_HINTS_TEXT_MAX];

    if (!config->work.nics.sets_env || !nic_hints_format(text, &config->work.nics))
        return;
    if (config->run.node_rank <= 0)
        messages_notice("%s", text);
    else
        ct_info("%s", text);
}

void launch_notice_beginning(const struct config *config)
{
    char text[NESTED_TEXT_MAX];

    if (*nested_format(text, sizeof text, config->env))
        messages_notice("%s", text);
    if (config->work.no_program.code < 0 && !config->run.task.is_quiet)
        messages_warn(config->work.no_program.code,
                      "%s; this node joins the run, so that the other nodes end for "
                      "this reason too",
                      config->work.no_program.text);
    notice_nics(config);
    if (config->run.requeues && config->run.node_rank <= 0)
        messages_notice("%s has requeued this job %u time%s", config->run.batch_system,
                        config->run.requeues, config->run.requeues > 1 ? "s" : "");
    notice_end_beginning(config);
}
