/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    JSON_TEXT_MAX_BYTES = 256 * 1024,
    NESTING_MAX = 32, /* cJSON's own 1000 is deep for a stack we do not know */
};

/* Reads a regular file whole; *text is NUL-terminated and owned by the caller. A FIFO
 * or a device in its place must not make the launcher wait. */
static int read_file(const char *path, char **text, size_t *length)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat info;
    ssize_t got = 0;
    int rc = 0;

    if (fd < 0)
        return -errno;
    if (fstat(fd, &info) < 0)
        rc = -errno;
    else if (!S_ISREG(info.st_mode))
        rc = -EBADMSG;
    else if (info.st_size > JSON_FILE_MAX_BYTES)
        rc = -EFBIG;
    else if (!(*text = ct_zalloc((size_t)info.st_size + 1)))
        rc = -ENOMEM;
    for (*length = 0; rc == 0 && *length < (size_t)info.st_size;
         *length += (size_t)got) {
        got = read(fd, *text + *length, (size_t)info.st_size - *length);
        if (got < 0)
            rc = -errno;
        if (got <= 0)
            break;
    }
    close(fd);
    if (rc < 0) {
        free(*text);
        *text = NULL;
    }
    return rc;
}

bool json_is_too_deep(const char *text, size_t length, int max)
{
    int depth = 0;

    for (size_t i = 0; i < length; i++) {
        depth += text[i] == '{' || text[i] == '[';
        depth -= text[i] == '}' || text[i] == ']';
        if (depth > max)
            return true;
    }
    return false;
}

/* 0 and a tree, or a code. */
static int parse_file(const char *path, cJSON **out)
{
    size_t length = 0;
    char *text = NULL;
    int rc = read_file(path, &text, &length);

    if (rc < 0)
        return rc;
    *out = json_is_too_deep(text, length, NESTING_MAX)
               ? NULL
               : cJSON_ParseWithLength(text, length + 1);
    free(text);
    if (!cJSON_IsObject(*out)) {
        cJSON_Delete(*out);
        *out = NULL;
        return -EBADMSG;
    }
    return 0;
}

/* The timestamp is a text in the first form and may be a number in others. */
static int64_t read_timestamp(const cJSON *item)
{
    uint64_t seconds;

    if (cJSON_IsString(item) &&
        ct_parse_u64(item->valuestring, 0, INT64_MAX, &seconds) == 0)
        return (int64_t)seconds;
    if (cJSON_IsNumber(item) && item->valuedouble > 0 && item->valuedouble < 9e15)
        return (int64_t)item->valuedouble;
    return 0;
}

int json_error_file_read(const char *path, struct json_error_file *out)
{
    const cJSON *message;
    const cJSON *text;
    const cJSON *extra = NULL;
    const cJSON *stack;
    cJSON *root = NULL;
    int rc = parse_file(path, &root);

    *out = (struct json_error_file){0};
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    message = text = cJSON_GetObjectItemCaseSensitive(root, "message");
    if (cJSON_IsObject(message)) {
        text = cJSON_GetObjectItemCaseSensitive(message, "message");
        extra = cJSON_GetObjectItemCaseSensitive(message, "extraInfo");
    }
    stack = cJSON_GetObjectItemCaseSensitive(extra, "py_callstack");
    out->timestamp = read_timestamp(
        cJSON_GetObjectItemCaseSensitive(extra ? extra : root, "timestamp"));
    rc = -EBADMSG;
    if (cJSON_IsString(text)) {
        out->message = ct_strdup(text->valuestring);
        if (cJSON_IsString(stack))
            out->callstack = ct_strdup(stack->valuestring);
        rc = out->message && (out->callstack || !cJSON_IsString(stack)) ? 1 : -ENOMEM;
    }
    cJSON_Delete(root);
    if (rc < 0)
        json_error_file_deinit(out);
    return rc;
}

void json_error_file_deinit(struct json_error_file *file)
{
    free(file->message);
    free(file->callstack);
    *file = (struct json_error_file){0};
}

/* Writes a temporary name in the same directory, then renames: never half a file. */
static int write_tree(const char *path, const cJSON *root, struct ctrun_error *err)
{
    char *text = cJSON_PrintUnformatted(root);
    char temporary[PATH_MAX];
    size_t length;
    int rc = 0;
    int fd;

    if (!text)
        return ct_fail(err, -ENOMEM, "error file %.600s: out of memory", path);
    length = strlen(text);
    if (ct_format(temporary, sizeof temporary, "%s.%d", path, (int)getpid()) < 0)
        rc = -ENAMETOOLONG;
    else if ((fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) < 0)
        rc = -errno;
    else {
        ssize_t put = write(fd, text, length);

        if (put != (ssize_t)length)
            rc = put < 0 ? -errno : -ENOSPC;
        if (close(fd) < 0 && rc == 0)
            rc = -errno;
        if (rc == 0 && rename(temporary, path) < 0)
            rc = -errno;
        if (rc < 0)
            (void)unlink(temporary);
    }
    cJSON_free(text);
    return rc < 0 ? ct_fail(err, rc, "error file %.600s: %s", path, strerror(-rc)) : 0;
}

int json_error_file_copy(const char *from, const char *to, int error_code,
                         struct ctrun_error *err)
{
    cJSON *root = NULL;
    cJSON *message;
    int rc = parse_file(from, &root);

    if (rc < 0)
        return ct_fail(err, rc, "error file %.600s: %s", from, strerror(-rc));
    message = cJSON_GetObjectItemCaseSensitive(root, "message");
    if (cJSON_IsObject(message)) {
        cJSON_DeleteItemFromObjectCaseSensitive(message, "errorCode");
        (void)cJSON_AddNumberToObject(message, "errorCode", error_code);
    }
    rc = write_tree(to, root, err);
    cJSON_Delete(root);
    return rc;
}

int json_error_file_write(const char *path, const char *message,
                          struct ctrun_error *err)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *inner = cJSON_AddObjectToObject(root, "message");
    cJSON *extra;
    char seconds[24];
    int rc = -ENOMEM;

    (void)ct_format(seconds, sizeof seconds, "%llu",
                    (unsigned long long)(ct_wall_ns() / 1000000000u));
    if (inner && cJSON_AddStringToObject(inner, "message", message) &&
        (extra = cJSON_AddObjectToObject(inner, "extraInfo")) &&
        cJSON_AddStringToObject(extra, "py_callstack", message) &&
        cJSON_AddStringToObject(extra, "timestamp", seconds))
        rc = write_tree(path, root, err);
    else
        (void)ct_fail(err, rc, "error file %.600s: out of memory", path);
    cJSON_Delete(root);
    return rc;
}

/* ---- File timer ---------------------------------------------------------------------- */

static bool is_within(const cJSON *number, double min, double max)
{
    return cJSON_IsNumber(number) && number->valuedouble >= min &&
           number->valuedouble <= max;
}

int json_timer_read(const char *line, size_t length, struct agent_timer *out)
{
    cJSON *root = json_is_too_deep(line, length, NESTING_MAX)
                      ? NULL
                      : cJSON_ParseWithLength(line, length);
    const cJSON *pid = cJSON_GetObjectItemCaseSensitive(root, "pid");
    const cJSON *scope = cJSON_GetObjectItemCaseSensitive(root, "scope_id");
    const cJSON *expires = cJSON_GetObjectItemCaseSensitive(root, "expiration_time");
    const cJSON *signal = cJSON_GetObjectItemCaseSensitive(root, "signal");
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
    cJSON *root = NULL;
    cJSON *traits;
    char *text;

    if (!*event->error_file || parse_file(event->error_file, &root) < 0) {
        root = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(root, "message", "<NONE>");
        if (event->exit_code > 0 &&
            (traits = cJSON_AddObjectToObject(root, "errorTraits"))) {
            (void)cJSON_AddStringToObject(traits, "category",
                                          "system_terminated_error");
            (void)cJSON_AddStringToObject(traits, "retryability", "False");
        }
    }
    text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

/* JSON inside a text of JSON: so it is defined. */
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

/* ---- Text to stdout ------------------------------------------------------------------ */

void json_print_text(FILE *out, const char *text)
{
    uint8_t *room = ct_zalloc(JSON_TEXT_MAX_BYTES);
    struct ct_writer writer;

    ct_writer_init(&writer, room, room ? JSON_TEXT_MAX_BYTES : 0);
    ct_json_write_str(&writer, text);
    if (ct_write_end(&writer) < 0)
        fputs("\"?\"", out); /* an argument of more than 256 KiB */
    else
        fwrite(room, 1, writer.length, out);
    free(room);
}
