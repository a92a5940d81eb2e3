/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/json_summary.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    FILE_MAX_BYTES = 512 * 1024 /* as its writer has it */
};

static int64_t get_number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(item) && item->valuedouble > -9e18 && item->valuedouble < 9e18
               ? (int64_t)item->valuedouble
               : 0;
}

static int32_t get_int(const cJSON *object, const char *key)
{
    const int64_t value = get_number(object, key);

    return value > INT32_MAX || value < INT32_MIN ? 0 : (int32_t)value;
}

/* Cut where it does not fit; "" when there is none. */
static void get_text(const cJSON *object, const char *key, char *dst, size_t size)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);

    (void)ct_copy(dst, size, cJSON_IsString(item) ? item->valuestring : "");
}

static uint8_t read_cause(const cJSON *object)
{
    char name[32];

    get_text(object, "cause", name, sizeof name);
    for (int cause = CT_CAUSE_NONE; cause < 64; cause++)
        if (strcmp(ct_cause_name(cause), name) == 0)
            return (uint8_t)cause;
    return CT_CAUSE_EXIT;
}

static void read_facts(const cJSON *list, char *dst, size_t size)
{
    const cJSON *item;
    char label[32];
    char text[CT_FACTS_MAX];

    cJSON_ArrayForEach(item, list)
    {
        const size_t used = strlen(dst);

        get_text(item, "label", label, sizeof label);
        get_text(item, "text", text, sizeof text);
        if (ct_format(dst + used, size - used, "%s\t%s\n", label, text) < 0) {
            dst[used] = '\0';
            return;
        }
    }
}

static void read_failure(const cJSON *item, struct ct_failure *out)
{
    out->cause = read_cause(item);
    out->code = get_int(item, "code");
    out->rank = get_int(item, "rank");
    out->local_rank = get_int(item, "local_rank");
    out->node_rank = get_int(item, "node_rank");
    out->pid = get_int(item, "pid");
    out->generation = (uint64_t)get_number(item, "generation");
    out->restart_count = (uint32_t)get_int(item, "restart_count");
    out->wall_ns = (uint64_t)get_number(item, "time_ns");
    out->uptime_ms = (uint64_t)get_number(item, "uptime_ms");
    out->step = get_number(item, "step");
    get_text(item, "host", out->host, sizeof out->host);
    get_text(item, "error_file", out->error_file, sizeof out->error_file);
    get_text(item, "text", out->text, sizeof out->text);
    read_facts(cJSON_GetObjectItemCaseSensitive(item, "facts"), out->facts,
               sizeof out->facts);
}

static uint8_t read_outcome(const cJSON *root)
{
    static const struct {
        const char *name;
        enum ct_outcome outcome;
    } names[] = {
        {"succeeded", CT_OUTCOME_SUCCEEDED},
        {"failed", CT_OUTCOME_FAILED},
        {"join_timeout", CT_OUTCOME_JOIN_TIMEOUT},
        {"nodes_lost", CT_OUTCOME_NODES_LOST},
        {"closed", CT_OUTCOME_CLOSED},
        {"crash_loop", CT_OUTCOME_CRASH_LOOP},
    };
    char text[32];

    get_text(root, "outcome", text, sizeof text);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i].name) == 0)
            return (uint8_t)names[i].outcome;
    return 0;
}

static int read_root(const cJSON *root, struct json_summary *out)
{
    struct ct_verdict *verdict = &out->verdict;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "failures");
    const cJSON *item;

    if (!cJSON_IsString(cJSON_GetObjectItemCaseSensitive(root, "outcome")) ||
        !cJSON_IsArray(list))
        return -EBADMSG;
    get_text(root, "run_id", out->run_id, sizeof out->run_id);
    get_text(root, "program", out->program, sizeof out->program);
    get_text(root, "log_dir", out->log_dir, sizeof out->log_dir);
    get_text(root, "error", out->error, sizeof out->error);
    get_text(root, "message", out->message, sizeof out->message);
    out->max_restarts = (uint32_t)get_int(root, "max_restarts");
    out->signal = get_int(root, "signal");
    out->exit_code = get_int(root, "exit_code");
    verdict->outcome = read_outcome(root);
    verdict->generation = (uint64_t)get_number(root, "generation");
    verdict->restart_count = (uint32_t)get_int(root, "restart_count");
    cJSON_ArrayForEach(item, list)
    {
        if (verdict->failure_count < CT_FAILURES_MAX)
            read_failure(item, &verdict->failures[verdict->failure_count++]);
    }
    return 0;
}

int json_summary_read(const char *path, struct json_summary *out)
{
    char *text = ct_zalloc(FILE_MAX_BYTES);
    const int fd = text ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    cJSON *root = NULL;
    ssize_t n;
    int rc = text ? 0 : -ENOMEM;

    *out = (struct json_summary){0};
    if (text && (fd < 0 || (n = read(fd, text, FILE_MAX_BYTES)) < 0))
        rc = -errno;
    else if (text)
        rc = (root = cJSON_ParseWithLength(text, (size_t)n)) ? read_root(root, out)
                                                             : -EBADMSG;
    cJSON_Delete(root);
    if (fd >= 0)
        close(fd);
    free(text);
    return rc;
}
