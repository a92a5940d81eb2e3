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
#include "worker_sdk/base/str.h"

enum {
    NESTING_MAX = 32, /* cJSON's own 1000 is deep for a stack we do not know */
};

/* ---- Text to a tree ------------------------------------------------------------------ */

/* Brackets in strings counted, too. */
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

int json_parse_file(const char *path, cJSON **out)
{
    size_t length = 0;
    char *text = NULL;
    int rc = read_file(path, &text, &length);

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
    /* Casting a larger one would overflow. */
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
}

/* ---- Text to stdout ------------------------------------------------------------------ */

void json_print_text(FILE *out, const char *text)
{
    const size_t size = 6 * strlen(text) + 3; /* every byte escaped */
    uint8_t *quoted = ct_zalloc(size);
    struct ct_writer writer;

    if (!quoted) {
        fputs("null", out);
        return;
    }
    ct_writer_init(&writer, quoted, size);
    ct_json_write_str(&writer, text);
    (void)fwrite(quoted, 1, writer.length, out);
    free(quoted);
}
