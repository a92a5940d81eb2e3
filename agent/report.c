/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/report.h"

#include <fcntl.h>
#include <unistd.h>

#include "agent/worker.h"
#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/str.h"

enum {
    TEXT_MAX_BYTES = 6 * 4096 + 3 /* the longest path, every byte escaped */
};

/* Resident memory; -1 when the process is gone. */
static int64_t read_rss_kb(pid_t pid)
{
    char path[40];
    char text[128];
    unsigned long long pages = 0;
    ssize_t n;
    int fd;

    (void)ct_format(path, sizeof path, "/proc/%d/statm", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%*u %llu", &pages) != 1)
        return -1;
    return (int64_t)(pages * (unsigned long long)sysconf(_SC_PAGESIZE) / 1024);
}

static int add_text(struct ct_buf *out, const char *key, const char *text)
{
    uint8_t quoted[TEXT_MAX_BYTES];
    struct ct_writer writer;
    int rc;

    ct_writer_init(&writer, quoted, sizeof quoted);
    ct_json_write_str(&writer, text);
    if ((rc = ct_buf_printf(out, ",\"%s\":", key)) < 0 ||
        (rc = ct_write_end(&writer)) < 0)
        return rc;
    return ct_buf_append(out, quoted, writer.length);
}

static const char *worker_state(const struct worker *worker)
{
    switch (worker->state) {
    case WORKER_NEW: return "new";
    case WORKER_RUNNING: return worker->stop_signal ? "stopping" : "running";
    case WORKER_ENDED: break;
    }
    return worker->failure.cause == CT_CAUSE_NONE ? "succeeded" : "failed";
}

static int add_worker(struct ct_buf *out, const struct worker *worker)
{
    const bool is_running = worker->state == WORKER_RUNNING;
    const uint64_t up_ms = is_running ? ct_now_ms() - worker->started_ms
                                      : worker->failure.uptime_ms;
    int rc;

    rc = ct_buf_printf(
        out,
        "{\"rank\":%d,\"local_rank\":%d,\"pid\":%d,\"state\":\"%s\",\"uptime_ms\":%llu,"
        "\"step\":%lld,\"rss_kb\":%lld,\"cause\":\"%s\",\"code\":%d",
        worker->rank, worker->local_rank, (int)worker->pid, worker_state(worker),
        (unsigned long long)up_ms, (long long)worker->step,
        is_running ? (long long)read_rss_kb(worker->pid) : -1LL,
        ct_cause_name(worker->failure.cause), worker->failure.code);
    if (rc == 0 && worker->plan.out_file)
        rc = add_text(out, "stdout", worker->plan.out_file);
    if (rc == 0 && worker->plan.err_file)
        rc = add_text(out, "stderr", worker->plan.err_file);
    return rc < 0 ? rc : ct_buf_printf(out, "}");
}

static int add_workers(struct ct_buf *out, const struct crew *crew)
{
    int rc = ct_buf_printf(out, ",\"workers\":[");
    bool is_first = true;

    for (int i = 0; rc == 0 && i < crew_count(crew); i++) {
        const struct worker *worker = crew_worker(crew, i);

        if (worker->state == WORKER_NEW)
            continue; /* of no round yet */
        if (!is_first)
            rc = ct_buf_printf(out, ",");
        is_first = false;
        if (rc == 0)
            rc = add_worker(out, worker);
    }
    return rc < 0 ? rc : ct_buf_printf(out, "]");
}

static int add_waiting(struct ct_buf *out, const struct ct_waiting *waiting)
{
    int rc = ct_buf_printf(out,
                           ",\"waiting\":{\"joined\":%u,\"min_nodes\":%u,"
                           "\"max_nodes\":%u,\"left_ms\":%llu",
                           waiting->joined, waiting->min_nodes, waiting->max_nodes,
                           (unsigned long long)waiting->left_ms);

    if (rc == 0)
        rc = add_text(out, "missing", waiting->missing);
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
        report->state, (int)getpid(), (int)getppid(),
        (unsigned long long)(ct_now_ms() - report->born_ms),
        (unsigned long long)start->generation, start->restart_count,
        report->options->hello.max_restarts, start->group_world_size, start->group_rank,
        start->world_size,
        report->min_nodes ? report->min_nodes : report->options->hello.min_nodes,
        report->max_nodes ? report->max_nodes : report->options->hello.max_nodes,
        start->master_port);
    if (rc == 0)
        rc = add_text(out, "master_addr", start->master_addr);
    if (rc == 0)
        rc = add_text(out, "run_id", report->options->hello.run_id);
    if (rc == 0)
        rc = add_text(out, "host", report->options->hello.host);
    if (rc == 0)
        rc = ct_buf_printf(out, ",\"version\":\"%d.%d.%d\"", CTRUN_VERSION_MAJOR,
                           CTRUN_VERSION_MINOR, CTRUN_VERSION_PATCH);
    if (rc == 0 && report->waiting->max_nodes > 0)
        rc = add_waiting(out, report->waiting);
    if (rc == 0)
        rc = add_workers(out, report->crew);
    return rc < 0 ? rc : ct_buf_printf(out, "}");
}
