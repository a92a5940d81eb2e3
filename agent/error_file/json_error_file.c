/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/error_file/json_error_file.h"

#include <cjson/cJSON.h>
#include <errno.h>

#include "agent/error_file/json.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"
#include "worker_sdk/base/whole_file.h"

int json_error_file_read(const char *path, struct json_error_file *out)
{
    const cJSON *message;
    const cJSON *text;
    const cJSON *extra = NULL;
    const cJSON *stack;
    cJSON *root;
    int rc = json_parse_file(path, &root);

    *out = (struct json_error_file){0};
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc;
    message = text = json_get(root, "message");
    if (cJSON_IsObject(message)) {
        text = json_get(message, "message");
        extra = json_get(message, "extraInfo");
    }
    stack = json_get(extra, "py_callstack");
    out->error = json_get_int(extra, "ctrun_error");
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

static int write_tree(const char *path, const cJSON *root, struct ctrun_error *err)
{
    char *text = cJSON_PrintUnformatted(root);
    const int rc = text ? ct_whole_file_replace(path, text, strlen(text)) : -ENOMEM;

    cJSON_free(text);
    return rc < 0 ? ct_fail(err, rc, "error file %.600s: %s", path, strerror(-rc)) : 0;
}

int json_error_file_copy(const char *from, const char *to, int error_code, bool redacts,
                         struct ctrun_error *err)
{
    cJSON *root;
    cJSON *message;
    int rc = json_parse_file(from, &root);

    if (rc < 0)
        return ct_fail(err, rc, "error file %.600s: %s", from,
                       rc == -EBADMSG ? "it has no valid JSON object" : strerror(-rc));
    if (redacts)
        json_redact(root);
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
