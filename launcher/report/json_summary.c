/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/json_summary.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "launcher/report/fact_label.h"
#include "agent/error_file/json.h"
#include "launcher/report/summary_json.h"
#include "worker_sdk/base/str.h"

static uint8_t read_cause(const cJSON *object)
{
    char name[32];

    json_get_text(object, "cause", name, sizeof name);
    for (int cause = CT_CAUSE_NONE; cause < 64; cause++)
        if (strcmp(ct_cause_name(cause), name) == 0)
            return (uint8_t)cause;
    return CT_CAUSE_EXIT;
}

static void read_facts(const cJSON *list, struct ct_facts *out)
{
    const cJSON *item;
    char label[32];
    char text[CT_FACTS_MAX];

    cJSON_ArrayForEach(item, list)
    {
        json_get_text(item, "label", label, sizeof label);
        json_get_text(item, "text", text, sizeof text);
        (void)ct_facts_add(out, fact_key(label),
                           text); /* what does not fit is left out */
    }
}

static void read_failure(const cJSON *item, struct ct_failure *out)
{
    out->cause = read_cause(item);
    out->code = json_get_int(item, "code");
    out->end_code = json_get_int(item, "exit_code");
    out->rank = json_get_int(item, "rank");
    out->local_rank = json_get_int(item, "local_rank");
    out->node_rank = json_get_int(item, "node_rank");
    out->pid = json_get_int(item, "pid");
    out->generation = json_get_u64(item, "generation");
    out->restart_count = json_get_unsigned(item, "restart_count");
    out->wall_ns = json_get_u64(item, "time_ns");
    out->uptime_ms = json_get_u64(item, "uptime_ms");
    out->step = json_get_i64(item, "step", 0);
    out->later_ms = json_get_u64(item, "later_ms");
    json_get_text(item, "host", out->host, sizeof out->host);
    json_get_text(item, "error_file", out->error_file, sizeof out->error_file);
    json_get_lines(item, "exception", out->exception, sizeof out->exception);
    json_get_lines(item, "text", out->text, sizeof out->text);
    read_facts(json_get(item, "facts"), &out->facts);
}

/* With what the line about the restart needs. */
static void read_past(const cJSON *list, struct json_summary *out)
{
    const cJSON *item;

    cJSON_ArrayForEach(item, list)
    {
        struct ct_stop stop = {.max_restarts = out->max_restarts};

        read_failure(item, &stop.cause);
        stop.reason = stop.cause.cause == CT_CAUSE_NODE_LOST ? CT_STOP_NODE_LOST
                                                             : CT_STOP_FAILURE;
        stop.restart_count = stop.cause.restart_count + 1;
        past_failures_add(&out->past, &stop);
    }
}

/* 0: another one. */
static uint8_t read_outcome(const cJSON *root)
{
    const char *name;
    char text[32];

    json_get_text(root, "outcome", text, sizeof text);
    for (uint8_t i = CT_OUTCOME_SUCCEEDED; (name = summary_json_outcome(i)); i++)
        if (strcmp(text, name) == 0)
            return i;
    return 0;
}

static int read_root(const cJSON *root, struct json_summary *out)
{
    struct ct_verdict *verdict = &out->verdict;
    const cJSON *list = json_get(root, "failures");
    const cJSON *item;
    char reason[32];

    if (!cJSON_IsString(json_get(root, "outcome")) || !cJSON_IsArray(list))
        return -EBADMSG;
    json_get_text(root, "run_id", out->run_id, sizeof out->run_id);
    json_get_text(root, "program", out->program, sizeof out->program);
    json_get_text(root, "log_dir", out->log_dir, sizeof out->log_dir);
    json_get_text(root, "error", out->error, sizeof out->error);
    json_get_lines(root, "message", out->message, sizeof out->message);
    out->max_restarts = json_get_unsigned(root, "max_restarts");
    out->signal = json_get_int(root, "signal");
    json_get_text(root, "reason", reason, sizeof reason);
    out->allocation_ends = strcmp(reason, SUMMARY_JSON_ALLOCATION) == 0;
    out->exit_code = json_get_int(root, "exit_code");
    verdict->outcome = read_outcome(root);
    verdict->generation = json_get_u64(root, "generation");
    verdict->restart_count = json_get_unsigned(root, "restart_count");
    verdict->more.failed = json_get_unsigned(root, "more_failed");
    verdict->more.stopped = json_get_unsigned(root, "more_stopped");
    cJSON_ArrayForEach(item, list)
    {
        if (verdict->failure_count < CT_FAILURES_MAX)
            read_failure(item, &verdict->failures[verdict->failure_count++]);
    }
    read_past(json_get(root, "earlier_failures"), out);
    return 0;
}

int json_summary_read(const char *path, struct json_summary *out)
{
    cJSON *root;
    int rc = json_parse_file(path, &root);

    *out = (struct json_summary){0};
    if (rc == 0)
        rc = read_root(root, out);
    cJSON_Delete(root);
    return rc;
}

int json_summary_read_start(const char *path, struct json_summary_start *out)
{
    cJSON *root;
    const int rc = json_parse_file(path, &root);

    *out = (struct json_summary_start){0};
    json_get_text(root, "batch_task", out->batch_task, sizeof out->batch_task);
    out->requeues = json_get_unsigned(root, "requeues");
    out->total_restarts = json_get_u64(root, "total_restarts");
    out->unknown_starts = json_get_unsigned(root, "unknown_starts");
    cJSON_Delete(root);
    return rc;
}
