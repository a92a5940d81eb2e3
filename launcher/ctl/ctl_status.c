/* SPDX-License-Identifier: Apache-2.0 */
/* ctrunctl status: the runs of this machine and their workers. */
#include <errno.h>
#include <limits.h>

#include "launcher/ctl/ctl_run.h"
#include "launcher/report/messages.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/wire/contract.h"

static const struct ctl_option options[] = {CTL_OF_RUN};

enum {
    ROLE_WIDTH = 12, /* the first column, with --role */
    RESTARTS_WIDTH =
        9, /* the column after STATE, where a role may be restarted alone */
    CHILDREN_WIDTH = 18, /* the column after MEMORY, where a worker has children */
    FILES_MAX_BYTES = 2 * PATH_MAX,
};

static void print_json(const struct ctl_runs *runs)
{
    fputs("{\"runs\":[", stdout);
    for (size_t i = 0; i < runs->count; i++)
        printf("%s%s", i ? "," : "", runs->list[i].json);
    fputs("]}\n", stdout);
}

static void format_memory(char *dst, size_t size, int64_t kb)
{
    if (kb < 0)
        (void)ct_copy(dst, size, "-");
    else if (kb < 1024 * 1024)
        (void)ct_format(dst, size, "%.1f MiB", (double)kb / 1024);
    else
        (void)ct_format(dst, size, "%.1f GiB", (double)kb / (1024 * 1024));
}

/* File names may have control characters, which become '?'. */
static void format_files(char dst[FILES_MAX_BYTES], const struct json_worker *worker)
{
    (void)ct_format(dst, FILES_MAX_BYTES, "%s%s%s",
                    worker->out_file ? worker->out_file : "",
                    worker->out_file && worker->err_file ? " " : "",
                    worker->err_file ? worker->err_file : ""); /* cut is fine */
    ct_make_plain(dst, false);
}

/* "2, 646.1 MiB"; empty without children. */
static void format_children(char *dst, size_t size, const struct json_worker *worker)
{
    char memory[24];

    *dst = '\0';
    if (worker->children == 0)
        return;
    format_memory(memory, sizeof memory, worker->children_rss_kb);
    (void)ct_format(dst, size, "%d, %s", worker->children, memory);
}

static void print_worker(const struct json_worker *worker, bool has_restarts,
                         bool has_children)
{
    char up[MESSAGES_SPAN_MAX];
    char memory[24];
    char step[24] = "-";
    char state[48];
    char role[ROLE_WIDTH + 2] = "";
    char restarts[RESTARTS_WIDTH + 2] = "";
    char children[40];
    char files[FILES_MAX_BYTES];

    messages_format_span(up, worker->uptime_ms);
    format_memory(memory, sizeof memory, worker->rss_kb);
    if (worker->step >= 0)
        (void)ct_format(step, sizeof step, "%lld", (long long)worker->step);
    (void)ct_copy(state, sizeof state, worker->state);
    if (strcmp(worker->cause, "none") != 0 &&
        (strcmp(worker->state, "failed") == 0 || strcmp(worker->state, "stopped") == 0))
        (void)ct_format(state, sizeof state, "%s %d", worker->cause, worker->code);
    if (*worker->role)
        (void)ct_format(role, sizeof role, "%-*.*s ", ROLE_WIDTH, ROLE_WIDTH,
                        worker->role);
    if (has_restarts && worker->restarts < 0)
        (void)ct_format(restarts, sizeof restarts, " %*s", RESTARTS_WIDTH - 1, "-");
    else if (has_restarts)
        (void)ct_format(restarts, sizeof restarts, " %*d", RESTARTS_WIDTH - 1,
                        worker->restarts);
    format_children(children, sizeof children, worker);
    format_files(files, worker);
    printf("  %s%5d %5d %8d  %-10s%s %12s %9s %11s%*s  %s\n", role, worker->rank,
           worker->local_rank, worker->pid, state, restarts, up, step, memory,
           has_children ? CHILDREN_WIDTH : 0, children, files);
}

static bool has_restarts(const struct json_status *status)
{
    for (size_t i = 0; i < status->worker_count; i++)
        if (status->workers[i].restarts >= 0)
            return true;
    return false;
}

static bool has_children(const struct json_status *status)
{
    for (size_t i = 0; i < status->worker_count; i++)
        if (status->workers[i].children > 0)
            return true;
    return false;
}

/* Prints the command as typed; control characters become '?'. */
static void print_reload(const struct json_status *status)
{
    char shown[sizeof status->command];

    if (!*status->command)
        return;
    (void)ct_copy(shown, sizeof shown, status->command); /* same size */
    ct_make_plain(shown, false);
    printf("  reloaded, %s: %s\n",
           status->is_command_used ? "runs" : "from the next round on", shown);
}

static void print_straggler(const struct json_straggler *straggler)
{
    if (straggler->rank < 0)
        return;
    if (*straggler->host)
        printf("  the other nodes wait for %s, there mostly for rank %d",
               straggler->host, straggler->rank);
    else
        printf("  the others wait for rank %d", straggler->rank);
    printf(": %.1f ms late on the average, %.1f %% of a step (last %d steps); differs "
           "in: %s\n",
           straggler->late_ms, straggler->percent, straggler->steps,
           *straggler->differs
               ? straggler->differs
               : "nothing that is measured (CPU time and clock, hypervisor, pages from "
                 "disk, TCP, GPU clock)");
}

static void print_requeues(const struct json_status *status)
{
    if (status->requeues == 0)
        return;
    printf("  requeued %u time%s, %llu restart%s in all starts", status->requeues,
           status->requeues == 1 ? "" : "s", (unsigned long long)status->total_restarts,
           status->total_restarts == 1 ? "" : "s");
    if (status->unknown_starts > 0)
        printf(" but %u, which are not known", status->unknown_starts);
    putchar('\n');
}

static void print_waiting(const struct json_status *status)
{
    if (status->spare > 0)
        printf("  the run is full (%u of %u nodes): this node is spare #%u\n",
               status->joined, status->max_nodes, status->spare);
    else if (status->is_waiting && status->held_ms > 0 &&
             status->joined >= status->min_nodes)
        printf("  enough nodes have joined (%u); workers start in up to %.1f s, "
               "because %s\n",
               status->joined, (double)status->held_ms / 1000,
               messages_why_held(status->generation > 0 || status->missing[0]));
    else if (status->is_waiting && status->joined >= status->min_nodes &&
             status->joined < status->max_nodes)
        printf("  enough nodes have joined (%u of at most %u); the start waits up to "
               "%llu s "
               "for more%s%s\n",
               status->joined, status->max_nodes,
               (unsigned long long)((status->left_ms + 999) / 1000),
               *status->missing ? "; missing " : "", status->missing);
    else if (status->is_waiting)
        printf("  waiting for the others: %u of %u have joined%s%s\n", status->joined,
               status->min_nodes, *status->missing ? "; missing " : "",
               status->missing);
}

static void print_run(const struct json_status *status)
{
    const bool with_restarts = has_restarts(status);
    const bool with_children = has_children(status);
    char up[MESSAGES_SPAN_MAX];
    char head[ROLE_WIDTH + 2];

    (void)ct_format(head, sizeof head, "%-*s ", ROLE_WIDTH, "ROLE");
    messages_format_span(up, status->uptime_ms);
    printf("run %s: %s, pid %d, up %s\n", status->run_id, status->state,
           status->guard_pid, up);
    if (status->generation > 0)
        printf("  generation %llu, restarts %u/%u, world size %u, node %u of %u (%s), "
               "master %s:%d\n",
               (unsigned long long)status->generation, status->restart_count,
               status->max_restarts, status->world_size, status->node_rank,
               status->nodes, status->host, status->master_addr, status->master_port);
    print_requeues(status);
    if (*status->rendezvous)
        printf("  rendezvous %s: metrics at http://%s/metrics\n", status->rendezvous,
               status->rendezvous);
    if (status->ha_survives > 0)
        printf("  survives the loss of %u of %u nodes\n", status->ha_survives,
               status->ha_nodes);
    else if (status->ha_nodes > 0)
        printf(
            "  does not survive the loss of the node that serves the rendezvous yet\n");
    print_reload(status);
    print_waiting(status);
    if (status->connected > 0)
        printf("  %u of %u ranks have connected to the worker store; not yet: %s\n",
               status->connected, status->world_size, status->absent);
    print_straggler(&status->straggler);
    print_straggler(&status->straggler_node);
    if (status->worker_count > 0)
        printf("  %s%5s %5s %8s  %-10s%s %12s %9s %11s%*s  %s\n",
               *status->workers[0].role ? head : "", "RANK", "LOCAL", "PID", "STATE",
               with_restarts ? " RESTARTS" : "", "UPTIME", "STEP", "MEMORY",
               with_children ? CHILDREN_WIDTH : 0, with_children ? "CHILDREN" : "",
               "FILES");
    for (size_t i = 0; i < status->worker_count; i++)
        print_worker(&status->workers[i], with_restarts, with_children);
}

/* No run: exit code 1, and with --json still a JSON object, so that scripts can tell "no run" from
 * "could not ask". */
static int run(const struct ctl_call *call)
{
    struct ctrun_error err;
    struct ctl_runs runs;
    int code = CT_EXIT_OK;

    if (ctl_runs_find(&runs, call, &err) < 0) {
        code = ctl_fail(&err);
        if (err.code == -ESRCH && ctl_value(call, "json"))
            puts("{\"runs\":[]}");
    } else if (ctl_value(call, "json"))
        print_json(&runs);
    else
        for (size_t i = 0; i < runs.count; i++)
            print_run(&runs.list[i].status);
    ctl_runs_deinit(&runs);
    return code;
}

const struct ctl_verb ctl_status = {
    .name = "status",
    .words = "",
    .help = "show the runs of this machine and their workers\n"
            "Each run reports only what is on its node. Without a run: exit code 1, "
            "and with\n"
            "--json an empty list.",
    .options = options,
    .run = run,
};
