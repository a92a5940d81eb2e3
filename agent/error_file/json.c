/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/error_file/json.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>

#include "agent/error_file/redact.h"
#include "worker_sdk/base/whole_file.h"
#include "worker_sdk/base/event.h"
#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"

enum {
    /* cJSON's own limit of 1000 is deep for a stack of unknown size */
    NESTING_MAX = 32,
};

/* ---- Text to a tree ------------------------------------------------------------------ */

/* Counts brackets in strings, too, so it may refuse a text that is fine. */
static bool is_too_deep(const char *text, size_t length)
{
    int depth = 0;

    for (size_t i = 0; i < length; i++) {
        depth += text[i] == '{' || text[i] == '[';
        depth -= text[i] == '}' || text[i] == ']';
        if (depth > NESTING_MAX)
            return true;
    }
    return false;
}

cJSON *json_parse(const char *text, size_t length)
{
    cJSON *root = is_too_deep(text, length) ? NULL
                                            : cJSON_ParseWithLength(text, length);

    if (cJSON_IsObject(root))
        return root;
    cJSON_Delete(root);
    return NULL;
}

int json_parse_file(const char *path, cJSON **out)
{
    size_t length = 0;
    char *text = NULL;
    int rc = ct_whole_file_read(path, JSON_FILE_MAX_BYTES, &text, &length, NULL);

    *out = rc < 0 ? NULL : json_parse(text, length);
    free(text);
    return rc < 0 || *out ? rc : -EBADMSG;
}

/* ---- Fields -------------------------------------------------------------------------- */

const cJSON *json_get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

int64_t json_get_i64(const cJSON *object, const char *key, int64_t fallback)
{
    const cJSON *item = json_get(object, key);
    int64_t value;

    if (cJSON_IsString(item))
        return ct_parse_i64(item->valuestring, INT64_MIN, INT64_MAX, &value) == 0
                   ? value
                   : fallback;
    /* A cast of a larger number would overflow. */
    return cJSON_IsNumber(item) && item->valuedouble > -9e18 && item->valuedouble < 9e18
               ? (int64_t)item->valuedouble
               : fallback;
}

int json_get_int(const cJSON *object, const char *key)
{
    const int64_t value = json_get_i64(object, key, 0);

    return value < INT_MIN || value > INT_MAX ? 0 : (int)value;
}

unsigned json_get_unsigned(const cJSON *object, const char *key)
{
    const int64_t value = json_get_i64(object, key, 0);

    return value < 0 || value > UINT_MAX ? 0 : (unsigned)value;
}

uint64_t json_get_u64(const cJSON *object, const char *key)
{
    const int64_t value = json_get_i64(object, key, 0);

    return value < 0 ? 0 : (uint64_t)value;
}

void json_get_text(const cJSON *object, const char *key, char *dst, size_t size)
{
    const char *text = cJSON_GetStringValue(json_get(object, key));

    (void)ct_copy(dst, size, text ? text : ""); /* cut: for people */
    ct_make_plain(dst, false);
}

void json_get_lines(const cJSON *object, const char *key, char *dst, size_t size)
{
    const char *text = cJSON_GetStringValue(json_get(object, key));

    (void)ct_copy(dst, size, text ? text : ""); /* cut: for people */
    ct_make_plain(dst, true);
}

/* ---- Text to stdout ------------------------------------------------------------------ */

void json_print_text(FILE *out, const char *text)
{
    struct ct_buf quoted;

    ct_buf_init(&quoted, SIZE_MAX / 2);
    if (ct_json_append_str(&quoted, text) < 0)
        fputs("null", out);
    else
        (void)fwrite(ct_buf_data(&quoted), 1, ct_buf_length(&quoted), out);
    ct_buf_deinit(&quoted);
}

/* json_parse() has limited the depth. */
void json_redact(cJSON *root)
{
    cJSON *child;

    if (cJSON_IsString(root))
        (void)redact(root->valuestring);
    cJSON_ArrayForEach(child, root) json_redact(child);
}
