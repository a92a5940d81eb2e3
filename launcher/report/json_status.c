/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/report/json_status.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "agent/error_file/json.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"

static char *get_path(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(json_get(object, key));

    return text ? ct_strdup(text) : NULL;
}

static void read_worker(struct json_worker *out, const cJSON *item)
{
    out->rank = json_get_int(item, "rank");
    out->local_rank = json_get_int(item, "local_rank");
    out->pid = json_get_int(item, "pid");
    out->code = json_get_int(item, "code");
    out->uptime_ms = json_get_u64(item, "uptime_ms");
    out->step = json_get_i64(item, "step", -1);
    out->restarts = (int)json_get_i64(item, "restarts", -1);
    out->rss_kb = json_get_i64(item, "rss_kb", -1);
    out->children = json_get_int(item, "children");
    out->children_rss_kb = json_get_i64(item, "children_rss_kb", 0);
    json_get_text(item, "role", out->role, sizeof out->role);
    json_get_text(item, "state", out->state, sizeof out->state);
    json_get_text(item, "cause", out->cause, sizeof out->cause);
    out->out_file = get_path(item, "stdout");
    out->err_file = get_path(item, "stderr");
}

static int read_workers(struct json_status *out, const cJSON *list)
{
    const int count = cJSON_GetArraySize(list);
    const cJSON *item;

    if (count <= 0)
        return 0;
    out->workers = ct_zalloc_array((size_t)count, sizeof *out->workers);
    if (!out->workers)
        return -ENOMEM;
    cJSON_ArrayForEach(item, list)
        read_worker(&out->workers[out->worker_count++], item);
    return 0;
}

static void read_straggler(struct json_straggler *out, const cJSON *item)
{
    out->rank = (int)json_get_i64(item, "rank", -1);
    out->steps = json_get_int(item, "steps");
    out->late_ms = (double)json_get_u64(item, "late_us") / 1000;
    out->percent = (double)json_get_u64(item, "late_permille") / 10;
    json_get_text(item, "host", out->host, sizeof out->host);
    json_get_text(item, "differs", out->differs, sizeof out->differs);
}

int json_status_read(struct json_status *out, const char *text, size_t length)
{
    cJSON *root = json_parse(text, length);
    const cJSON *waiting = json_get(root, "waiting");
    const cJSON *reload = json_get(root, "reload");
    int rc;

    *out = (struct json_status){0};
    if (!root)
        return -EBADMSG;
    json_get_text(root, "run_id", out->run_id, sizeof out->run_id);
    json_get_text(root, "host", out->host, sizeof out->host);
    json_get_text(root, "state", out->state, sizeof out->state);
    json_get_text(root, "master_addr", out->master_addr, sizeof out->master_addr);
    json_get_text(root, "rendezvous", out->rendezvous, sizeof out->rendezvous);
    out->pid = json_get_int(root, "pid");
    out->guard_pid = json_get_int(root, "guard_pid");
    out->master_port = json_get_int(root, "master_port");
    out->uptime_ms = json_get_u64(root, "uptime_ms");
    out->generation = json_get_u64(root, "generation");
    out->restart_count = json_get_unsigned(root, "restart_count");
    out->max_restarts = json_get_unsigned(root, "max_restarts");
    out->requeues = json_get_unsigned(root, "requeues");
    out->total_restarts = json_get_u64(root, "total_restarts");
    out->unknown_starts = json_get_unsigned(root, "unknown_starts");
    out->nodes = json_get_unsigned(root, "nodes");
    out->node_rank = json_get_unsigned(root, "node_rank");
    out->world_size = json_get_unsigned(root, "world_size");
    out->ha_nodes = json_get_unsigned(json_get(root, "ha"), "nodes");
    out->ha_survives = json_get_unsigned(json_get(root, "ha"), "survives");
    read_straggler(&out->straggler, json_get(root, "straggler"));
    read_straggler(&out->straggler_node, json_get(root, "straggler_node"));
    out->connected = json_get_unsigned(json_get(root, "absent"), "connected");
    json_get_text(json_get(root, "absent"), "ranks", out->absent, sizeof out->absent);
    json_get_text(reload, "command", out->command, sizeof out->command);
    out->is_command_used = cJSON_IsTrue(json_get(reload, "is_used"));
    out->is_waiting = cJSON_IsObject(waiting);
    out->joined = json_get_unsigned(waiting, "joined");
    out->min_nodes = json_get_unsigned(waiting, "min_nodes");
    out->max_nodes = json_get_unsigned(waiting, "max_nodes");
    out->spare = json_get_unsigned(waiting, "spare");
    out->left_ms = json_get_u64(waiting, "left_ms");
    out->held_ms = json_get_u64(waiting, "held_ms");
    json_get_text(waiting, "missing", out->missing, sizeof out->missing);
    rc = read_workers(out, json_get(root, "workers"));
    cJSON_Delete(root);
    return rc;
}

void json_status_deinit(struct json_status *status)
{
    for (size_t i = 0; i < status->worker_count; i++) {
        free(status->workers[i].out_file);
        free(status->workers[i].err_file);
    }
    free(status->workers);
    *status = (struct json_status){0};
}

int json_server_read(const char *text, size_t length, char *version,
                     size_t version_size, char *runs, size_t runs_size)
{
    cJSON *root = json_parse(text, length);
    const cJSON *list = json_get(root, "runs");
    const bool is_ours = cJSON_IsArray(list) &&
                         cJSON_IsString(json_get(root, "version"));
    const cJSON *item;

    *runs = '\0';
    json_get_text(root, "version", version, version_size);
    if (is_ours)
        cJSON_ArrayForEach(item, list)
        {
            const size_t used = strlen(runs);
            char id[CT_RUN_ID_MAX];
            char state[16];

            json_get_text(item, "run_id", id, sizeof id);
            json_get_text(item, "state", state, sizeof state);
            (void)ct_format(runs + used, runs_size - used, "%s%s (%s)",
                            used ? ", " : "", id, state);
        }
    cJSON_Delete(root);
    return is_ours ? 0 : -EBADMSG;
}

int json_text_read(const char *text, size_t length, const char *key, char **out)
{
    cJSON *root = json_parse(text, length);
    const cJSON *value = json_get(root, key);
    int rc = cJSON_IsString(value) ? 0 : -EBADMSG;

    if (rc == 0 && !(*out = ct_strdup(value->valuestring)))
        rc = -ENOMEM;
    if (rc == 0)
        ct_make_plain(*out, true);
    cJSON_Delete(root);
    return rc;
}
