/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/guard/guard.h"
#include "agent/node/start_profile.h"
#include "agent/worker/worker.h"
#include "agent/worker/worker_metrics.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"

/* Each add_x() appends ",\"key\":value". 0, or -ENOBUFS, -ENOMEM: then `out` is of no use. */
static int add_text(struct ct_buf *out, const char *key, const char *text)
{
    const int rc = ct_buf_printf(out, ",\"%s\":", key);

    return rc < 0 ? rc : ct_json_append_str(out, text);
}

static const char *worker_state(const struct worker *worker)
{
    switch (worker->state) {
    case WORKER_NEW: return "new";
    case WORKER_RUNNING:
        return worker->stop_signal || worker->is_spared ? "stopping" : "running";
    case WORKER_RESTARTING: return "restarting";
    case WORKER_ENDED: break;
    }
    return worker->failure.cause == CT_CAUSE_NONE
               ? (worker->stop_signal || worker->is_spared ? "stopped" : "succeeded")
           : worker->failure.cause == CT_CAUSE_STOPPED ? "stopped"
                                                       : "failed";
}

/* KiB in the last minute, the oldest first. */
static int add_memory(struct ct_buf *out, const struct memory_curve *curve)
{
    int rc = ct_buf_printf(out, ",\"memory_kb\":[");

    for (int i = 0; rc == 0 && i < memory_count(curve); i++)
        rc = ct_buf_printf(out, "%s%u", i ? "," : "", memory_get(curve, i));
    return rc < 0 ? rc : ct_buf_printf(out, "]");
}

static int add_metrics(struct ct_buf *out, const struct worker *worker)
{
    char text[WORKER_METRICS_TEXT_MAX];

    return worker_metrics_format(text, worker->metrics) > 0
               ? ct_buf_printf(out, ",\"metrics\":%s", text)
               : 0;
}

static int add_start(struct ct_buf *out, const struct worker *worker)
{
    uint8_t json[1024]; /* four parts have less than half of it */
    struct bill_rank start;
    struct ct_writer text;

    start_profile_read(&start, worker);
    ct_writer_init(&text, json, sizeof json);
    bill_write_rank(&text, &start);
    ct_write_u8(&text, 0);
    return ct_write_end(&text) < 0
               ? 0
               : ct_buf_printf(out, ",\"start\":%s", (const char *)json);
}

/* Where a node has several. */
static int add_role(struct ct_buf *out, const struct worker *worker,
                    const struct report *report)
{
    struct ct_role_at role;
    int rc;

    if (report->options->join.roles.count == 0)
        return 0;
    worker_find_role(&role, worker, &report->options->join, report->start);
    rc = ct_buf_printf(out, ",\"role_rank\":%u", role.rank);
    return rc < 0 ? rc : add_text(out, "role", role.name);
}

/* /proc is read here and not kept: a status is as old as its request. */
static int add_worker(struct ct_buf *out, const struct worker *worker,
                      const struct worker_children *children,
                      const struct report *report)
{
    const bool is_running = worker->state == WORKER_RUNNING;
    const uint64_t up_ms = is_running ? ct_now_ms() - worker->started_ms
                                      : worker->failure.uptime_ms;
    int rc;

    rc = ct_buf_printf(
        out,
        "{\"rank\":%d,\"local_rank\":%d,\"pid\":%d,\"state\":\"%s\",\"uptime_ms\":%llu,"
        "\"step\":%lld,\"rss_kb\":%lld,\"children\":%d,\"children_rss_kb\":%lld,"
        "\"cause\":\"%s\",\"code\":%d",
        worker->rank, worker->local_id, (int)worker->pid, worker_state(worker),
        (unsigned long long)up_ms, (long long)worker->step,
        is_running ? (long long)memory_read_kib(worker->pid) : -1LL, children->count,
        (long long)children->rss_kb, ct_cause_name(worker->failure.cause),
        worker->failure.code);
    if (rc == 0)
        rc = add_memory(out, &worker->memory);
    if (rc == 0)
        rc = add_metrics(out, worker);
    if (rc == 0)
        rc = add_start(out, worker);
    if (rc == 0)
        rc = add_role(out, worker, report);
    if (rc == 0 && worker->plan.may_restart)
        rc = ct_buf_printf(out, ",\"restarts\":%d", worker->restarts);
    if (rc == 0 && worker->plan.out_file)
        rc = add_text(out, "stdout", worker->plan.out_file);
    if (rc == 0 && worker->plan.err_file)
        rc = add_text(out, "stderr", worker->plan.err_file);
    return rc < 0 ? rc : ct_buf_printf(out, "}");
}

static int add_workers(struct ct_buf *out, const struct report *report)
{
    const struct worker_group *group = report->group;
    struct worker_children *children = ct_zalloc_array(
        (size_t)worker_group_count(group) + 1, sizeof *children);
    int rc = children ? ct_buf_printf(out, ",\"workers\":[") : -ENOMEM;
    bool is_first = true;

    if (children)
        worker_group_count_children(group, children);
    for (int i = 0; rc == 0 && i < worker_group_count(group); i++) {
        const struct worker *worker = worker_group_worker(group, i);

        if (worker->state == WORKER_NEW)
            continue; /* not in a round yet */
        if (!is_first)
            rc = ct_buf_printf(out, ",");
        is_first = false;
        if (rc == 0)
            rc = add_worker(out, worker, &children[i], report);
    }
    free(children);
    return rc < 0 ? rc : ct_buf_printf(out, "]");
}

static int add_waiting(struct ct_buf *out, const struct ct_waiting *waiting)
{
    int rc = ct_buf_printf(out,
                           ",\"waiting\":{\"joined\":%u,\"min_nodes\":%u,"
                           "\"max_nodes\":%u,\"left_ms\":%llu,\"held_ms\":%llu",
                           waiting->joined, waiting->min_nodes, waiting->max_nodes,
                           (unsigned long long)waiting->left_ms,
                           (unsigned long long)waiting->held_ms);

    if (rc == 0 && waiting->is_spare)
        rc = ct_buf_printf(out, ",\"spare\":%u", waiting->is_spare);
    if (rc == 0)
        rc = add_text(out, "missing", waiting->missing);
    return rc < 0 ? rc : ct_buf_printf(out, "}");
}

static int add_earlier(struct ct_buf *out, const struct report *report)
{
    const struct job_starts *earlier = &report->options->earlier;

    return ct_buf_printf(
        out, ",\"requeues\":%u,\"total_restarts\":%llu,\"unknown_starts\":%u",
        earlier->requeues,
        (unsigned long long)(report->start->restart_count + earlier->restarts),
        earlier->unknown);
}

/* How many losses of a node the run's own etcd survives now. */
static int add_ha(struct ct_buf *out, const struct report *report)
{
    const struct ct_ha_plan *plan = report->ha_plan;

    return ct_buf_printf(out, ",\"ha\":{\"nodes\":%u,\"survives\":%u}",
                         report->options->ha.nodes,
                         report->is_linked ? plan->survives : 0);
}

/* `name` NULL: a rank; else a node. */
static int add_straggler(struct ct_buf *out, const char *name,
                         const struct straggler_report *late)
{
    int rc = ct_buf_printf(out, ",\"%s\":{\"rank\":%d", name, late->rank);

    if (rc == 0 && *late->host)
        rc = ct_buf_printf(out, ",\"node\":%d", late->found.rank);
    if (rc == 0 && *late->host)
        rc = add_text(out, "host", late->host);
    if (rc == 0)
        rc = ct_buf_printf(out, ",\"late_us\":%lld,\"late_permille\":%d,\"steps\":%d",
                           (long long)(late->found.late_ns / 1000),
                           (int)(late->found.share * 1000), late->found.steps);
    if (rc == 0)
        rc = add_text(out, "differs", late->differs);
    return rc < 0 ? rc : ct_buf_printf(out, "}");
}

static int add_absent(struct ct_buf *out, const struct agent_absent *absent)
{
    int rc = ct_buf_printf(out, ",\"absent\":{\"connected\":%u,\"world_size\":%u",
                           absent->connected, absent->world_size);

    if (rc == 0)
        rc = add_text(out, "ranks", absent->text);
    return rc < 0 ? rc : ct_buf_printf(out, "}");
}

/* The command that workers run since the reload, or will run from the next round on. */
static int add_reload(struct ct_buf *out, const struct report *report)
{
    int rc = ct_buf_printf(out, ",\"reload\":{\"number\":%llu,\"is_used\":%s",
                           (unsigned long long)report->reload->number,
                           report->reload_waits ? "false" : "true");

    if (rc == 0)
        rc = add_text(out, "by", report->reload->by);
    if (rc == 0)
        rc = add_text(out, "command", report->reload->command);
    return rc < 0 ? rc : ct_buf_printf(out, "}");
}

int report_format(struct ct_buf *out, const struct report *report)
{
    const struct ct_start *start = report->start;
    int rc;

    rc = ct_buf_printf(
        out,
        "{\"state\":\"%s\",\"pid\":%d,\"guard_pid\":%d,\"uptime_ms\":%llu,"
        "\"generation\":%llu,"
        "\"restart_count\":%u,\"max_restarts\":%u,\"nodes\":%u,\"node_rank\":%u,"
        "\"world_size\":%u,\"min_nodes\":%u,\"max_nodes\":%u,\"master_port\":%u",
        report->state, (int)getpid(), (int)guard_pid(),
        (unsigned long long)(ct_now_ms() - report->born_ms),
        (unsigned long long)start->generation, start->restart_count,
        report->options->hello.max_restarts, start->group_world_size, start->group_rank,
        start->world_size, report->min_nodes, report->max_nodes, start->master_port);
    if (rc == 0)
        rc = add_earlier(out, report);
    if (rc == 0)
        rc = add_text(out, "master_addr", start->master_addr);
    if (rc == 0 && *report->rendezvous)
        rc = add_text(out, "rendezvous", report->rendezvous);
    if (rc == 0)
        rc = add_text(out, "run_id", report->options->hello.run_id);
    if (rc == 0)
        rc = add_text(out, "host", report->options->hello.host);
    if (rc == 0)
        rc = ct_buf_printf(out, ",\"version\":\"%d.%d.%d\"", CTRUN_VERSION_MAJOR,
                           CTRUN_VERSION_MINOR, CTRUN_VERSION_PATCH);
    if (rc == 0 && report->waiting->max_nodes > 0)
        rc = add_waiting(out, report->waiting);
    if (rc == 0 && report->options->ha.nodes > 0)
        rc = add_ha(out, report);
    if (rc == 0 && report->straggler)
        rc = add_straggler(out, "straggler", report->straggler);
    if (rc == 0 && report->slow_node)
        rc = add_straggler(out, "straggler_node", report->slow_node);
    if (rc == 0 && report->absent)
        rc = add_absent(out, report->absent);
    if (rc == 0 && report->reload)
        rc = add_reload(out, report);
    if (rc == 0)
        rc = add_workers(out, report);
    return rc < 0 ? rc : ct_buf_printf(out, "}");
}
