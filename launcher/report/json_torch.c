/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/json_torch.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "agent/error_file/json.h"
#include "worker_sdk/base/str.h"

/* ---- File timer ---------------------------------------------------------------------- */

static bool is_within(const cJSON *number, double min, double max)
{
    return cJSON_IsNumber(number) && number->valuedouble >= min &&
           number->valuedouble <= max;
}

int json_torch_timer_read(const char *line, size_t length, struct agent_timer *out)
{
    cJSON *root = json_parse(line, length);
    const cJSON *pid = json_get(root, "pid");
    const cJSON *scope = json_get(root, "scope_id");
    const cJSON *expires = json_get(root, "expiration_time");
    const cJSON *signal = json_get(root, "signal");
    int rc = -EBADMSG;

    if (is_within(pid, 1, INT32_MAX) && cJSON_IsNumber(expires) &&
        is_within(signal, 0, 64) && cJSON_IsString(scope) &&
        ct_copy(out->scope, sizeof out->scope, scope->valuestring) == 0) {
        out->pid = (int32_t)pid->valuedouble;
        out->signal = (int)signal->valuedouble;
        out->expires_s = expires->valuedouble;
        rc = 0;
    }
    cJSON_Delete(root);
    return rc;
}

/* ---- torchrun's events --------------------------------------------------------------- */

static void add_text_or_null(cJSON *object, const char *name, const char *text)
{
    if (text)
        (void)cJSON_AddStringToObject(object, name, text);
    else
        (void)cJSON_AddNullToObject(object, name);
}

static void add_number_if(cJSON *object, const char *name, bool is_known, double number)
{
    if (is_known)
        (void)cJSON_AddNumberToObject(object, name, number);
    else
        (void)cJSON_AddNullToObject(object, name);
}

static void add_list_of_one(cJSON *object, const char *name, bool is_known, int number)
{
    cJSON *list = cJSON_AddArrayToObject(object, name);

    (void)cJSON_AddItemToArray(list, is_known ? cJSON_CreateNumber(number)
                                              : cJSON_CreateNull());
}

/* The worker's error file, or what torchrun writes in its place. */
static char *format_raw_error(const struct json_torch_event *event)
{
    cJSON *root;
    cJSON *traits;
    char *text;

    if (!*event->error_file || json_parse_file(event->error_file, &root) < 0) {
        root = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(root, "message", "<NONE>");
        if (event->exit_code > 0 &&
            (traits = cJSON_AddObjectToObject(root, "errorTraits"))) {
            (void)cJSON_AddStringToObject(traits, "category",
                                          "system_terminated_error");
            (void)cJSON_AddStringToObject(traits, "retryability", "False");
        }
    }
    if (event->redacts)
        json_redact(root);
    text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

/* JSON inside a JSON string: torchrun's format. */
static char *format_inner(const struct json_torch_event *event)
{
    const bool has_failed = event->has_failed;
    cJSON *inner = cJSON_CreateObject();
    char *text;

    add_number_if(inner, "group_world_size", event->group_world_size >= 0,
                  event->group_world_size);
    (void)cJSON_AddStringToObject(inner, "entry_point", event->entry_point);
    if (event->is_worker) {
        add_list_of_one(inner, "local_rank", true, event->local_rank);
        add_list_of_one(inner, "role_rank", true, event->role_rank);
        add_list_of_one(inner, "role_world_size", true, event->role_world_size);
        add_list_of_one(inner, "exit_code", has_failed, event->exit_code);
        add_list_of_one(inner, "worker_pid", has_failed, event->pid);
    }
    text = cJSON_PrintUnformatted(inner);
    cJSON_Delete(inner);
    return text;
}

static void add_metadata(cJSON *root, const struct json_torch_event *event)
{
    cJSON *data = cJSON_AddObjectToObject(root, "metadata");
    char *raw_error = event->has_failed ? format_raw_error(event) : NULL;
    char *inner = format_inner(event);
    char pid[16];

    (void)ct_format(pid, sizeof pid, "%d", event->pid);
    (void)cJSON_AddStringToObject(data, "run_id", event->run_id);
    add_number_if(data, "global_rank", event->is_worker, event->rank);
    add_number_if(data, "group_rank", event->group_rank >= 0, event->group_rank);
    add_text_or_null(data, "worker_id", event->is_worker ? pid : NULL);
    (void)cJSON_AddStringToObject(data, "role", event->role);
    (void)cJSON_AddStringToObject(data, "hostname", event->host);
    (void)cJSON_AddStringToObject(data, "state", event->state);
    (void)cJSON_AddNumberToObject(data, "total_run_time", (double)event->total_s);
    (void)cJSON_AddStringToObject(data, "rdzv_backend", event->backend);
    add_text_or_null(data, "raw_error", raw_error ? raw_error : event->error);
    add_text_or_null(data, "metadata", inner);
    (void)cJSON_AddNumberToObject(data, "agent_restarts", event->restarts);
    add_number_if(data, "duration_ms", event->duration_ms >= 0, event->duration_ms);
    cJSON_free(raw_error);
    cJSON_free(inner);
}

char *json_torch_event_format(const struct json_torch_event *event)
{
    cJSON *root = cJSON_CreateObject();
    char name[64];
    char *text;

    (void)ct_format(name, sizeof name, "torchelastic.worker.status.%s", event->state);
    (void)cJSON_AddStringToObject(root, "name", name);
    (void)cJSON_AddStringToObject(root, "source",
                                  event->is_worker ? "WORKER" : "AGENT");
    (void)cJSON_AddNumberToObject(root, "timestamp", 0); /* torchrun's value */
    add_metadata(root, event);
    text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}
