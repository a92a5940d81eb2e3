/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/json_status.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

static double get_number(const cJSON *object, const char *key, double fallback)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    /* Beyond 2^53 it is no count of anything, and casting it could overflow. */
    return cJSON_IsNumber(item) && item->valuedouble > -9e15 && item->valuedouble < 9e15
               ? item->valuedouble
               : fallback;
}

static int get_int(const cJSON *object, const char *key)
{
    const double value = get_number(object, key, 0);

    return value > INT_MAX ? INT_MAX : value < INT_MIN ? INT_MIN : (int)value;
}

static uint64_t get_u64(const cJSON *object, const char *key)
{
    const double value = get_number(object, key, 0);

    return value < 0 ? 0 : (uint64_t)value;
}

static unsigned get_unsigned(const cJSON *object, const char *key)
{
    const uint64_t value = get_u64(object, key);

    return value > UINT_MAX ? UINT_MAX : (unsigned)value;
}

static void get_text(const cJSON *object, const char *key, char *dst, size_t size)
{
    const char *text = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(object, key));

    (void)ct_copy(dst, size, text ? text : ""); /* cut: for people */
}

static char *get_path(const cJSON *object, const char *key)
{
    const char *text = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(object, key));

    return text ? ct_strdup(text) : NULL;
}

static void read_worker(struct json_worker *out, const cJSON *item)
{
    out->rank = get_int(item, "rank");
    out->local_rank = get_int(item, "local_rank");
    out->pid = get_int(item, "pid");
    out->code = get_int(item, "code");
    out->uptime_ms = get_u64(item, "uptime_ms");
    out->step = (int64_t)get_number(item, "step", -1);
    out->rss_kb = (int64_t)get_number(item, "rss_kb", -1);
    get_text(item, "state", out->state, sizeof out->state);
    get_text(item, "cause", out->cause, sizeof out->cause);
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

int json_status_read(struct json_status *out, const char *text, size_t length)
{
    cJSON *root = cJSON_ParseWithLength(text, length);
    const cJSON *waiting = cJSON_GetObjectItemCaseSensitive(root, "waiting");
    int rc;

    *out = (struct json_status){0};
    if (!cJSON_IsObject(root)) {
        cJSON_Delete(root);
        return -EBADMSG;
    }
    get_text(root, "run_id", out->run_id, sizeof out->run_id);
    get_text(root, "host", out->host, sizeof out->host);
    get_text(root, "state", out->state, sizeof out->state);
    get_text(root, "master_addr", out->master_addr, sizeof out->master_addr);
    out->pid = get_int(root, "pid");
    out->guard_pid = get_int(root, "guard_pid");
    out->master_port = get_int(root, "master_port");
    out->uptime_ms = get_u64(root, "uptime_ms");
    out->generation = get_u64(root, "generation");
    out->restart_count = get_unsigned(root, "restart_count");
    out->max_restarts = get_unsigned(root, "max_restarts");
    out->nodes = get_unsigned(root, "nodes");
    out->node_rank = get_unsigned(root, "node_rank");
    out->world_size = get_unsigned(root, "world_size");
    out->min_nodes = get_unsigned(root, "min_nodes");
    out->max_nodes = get_unsigned(root, "max_nodes");
    out->is_waiting = cJSON_IsObject(waiting);
    out->joined = get_unsigned(waiting, "joined");
    get_text(waiting, "missing", out->missing, sizeof out->missing);
    rc = read_workers(out, cJSON_GetObjectItemCaseSensitive(root, "workers"));
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
    cJSON *root = cJSON_ParseWithLength(text, length);
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "runs");
    const bool is_ours = cJSON_IsArray(list) &&
                         cJSON_IsString(
                             cJSON_GetObjectItemCaseSensitive(root, "version"));
    const cJSON *item;

    *runs = '\0';
    get_text(root, "version", version, version_size);
    if (is_ours)
        cJSON_ArrayForEach(item, list)
        {
            const size_t used = strlen(runs);
            char id[CT_RUN_ID_MAX];
            char state[16];

            get_text(item, "run_id", id, sizeof id);
            get_text(item, "state", state, sizeof state);
            (void)ct_format(runs + used, runs_size - used, "%s%s (%s)",
                            used ? ", " : "", id, state);
        }
    cJSON_Delete(root);
    return is_ours ? 0 : -EBADMSG;
}

int json_why_read(const char *text, size_t length, char **out)
{
    cJSON *root = cJSON_ParseWithLength(text, length);
    const cJSON *why = cJSON_GetObjectItemCaseSensitive(root, "why");
    int rc = cJSON_IsString(why) ? 0 : -EBADMSG;

    if (rc == 0 && !(*out = ct_strdup(why->valuestring)))
        rc = -ENOMEM;
    cJSON_Delete(root);
    return rc;
}
