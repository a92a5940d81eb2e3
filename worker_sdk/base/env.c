/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/env.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    ADDED_ENTRIES = 32, /* room for the names that a launcher adds */
    ADDED_BYTES = 2048
};

/* Memory for an entry, from one block while it has room: a launcher makes an environment for each
 * of many workers. */
static char *take(struct ct_env *env, size_t size)
{
    if (size > env->room_bytes - env->room_used)
        return ct_zalloc(size);
    env->room_used += size;
    return env->room + env->room_used - size;
}

static void give_back(const struct ct_env *env, char *entry)
{
    if ((uintptr_t)entry - (uintptr_t)env->room >= env->room_bytes)
        free(entry);
}

int ct_env_init(struct ct_env *env, char *const *base)
{
    size_t bytes = ADDED_BYTES;
    size_t count = 0;

    *env = (struct ct_env){0};
    for (; base && base[count]; count++)
        bytes += strlen(base[count]) + 1;
    env->capacity = count + ADDED_ENTRIES;
    env->list = ct_zalloc_array(env->capacity + 1, sizeof *env->list);
    env->room = ct_realloc_array(NULL, bytes, 1);
    if (!env->list || !env->room) {
        ct_env_deinit(env);
        return -ENOMEM;
    }
    env->room_bytes = bytes;
    for (; env->count < count; env->count++) {
        const size_t size = strlen(base[env->count]) + 1;

        env->list[env->count] = memcpy(take(env, size), base[env->count], size);
    }
    return 0;
}

void ct_env_deinit(struct ct_env *env)
{
    for (size_t i = 0; i < env->count; i++)
        give_back(env, env->list[i]);
    free(env->list);
    free(env->room);
    *env = (struct ct_env){0};
}

/* True if the entry is NAME=value; most entries differ in the first letter, which needs no call. */
static bool is_entry(const char *entry, const char *name, size_t length)
{
    return entry[0] == name[0] && strncmp(entry, name, length) == 0 &&
           entry[length] == '=';
}

const char *ct_env_find(char *const *list, const char *name)
{
    const size_t length = strlen(name);

    for (; list && *list; list++)
        if (is_entry(*list, name, length))
            return *list + length + 1;
    return NULL;
}

static bool is_program(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

bool ct_env_find_program(char *dst, size_t size, char *const *list, const char *name)
{
    const char *path = ct_env_find(list, "PATH");
    const char *folder;
    size_t length;

    if (strchr(name, '/'))
        return ct_copy(dst, size, name) == 0 && is_program(dst);
    if (!path)
        path = CT_ENV_NO_PATH;
    while ((folder = ct_next_field(&path, ':', &length)))
        if (ct_format(dst, size, "%.*s/%s", length ? (int)length : 1,
                      length ? folder : ".", name) >= 0 &&
            is_program(dst))
            return true;
    return false;
}

/* Index of name, or count when it is not set. */
static size_t find(const struct ct_env *env, const char *name)
{
    size_t length = strlen(name);
    size_t i;

    for (i = 0; i < env->count; i++)
        if (is_entry(env->list[i], name, length))
            break;
    return i;
}

static int put(struct ct_env *env, size_t at, char *entry)
{
    char **list;

    if (at < env->count) {
        give_back(env, env->list[at]);
        env->list[at] = entry;
        return 0;
    }
    if (env->count == env->capacity) {
        list = ct_realloc_array(env->list, env->capacity * 2 + 2, sizeof *list);
        if (!list)
            return -ENOMEM;
        env->list = list;
        env->capacity = env->capacity * 2 + 1;
    }
    env->list[env->count++] = entry;
    env->list[env->count] = NULL;
    return 0;
}

int ct_env_set(struct ct_env *env, const char *name, const char *value)
{
    size_t name_length = strlen(name);
    size_t value_length = strlen(value);
    char *entry;
    int rc;

    if (!name_length || strchr(name, '='))
        return -EINVAL;
    if (!(entry = take(env, name_length + value_length + 2)))
        return -ENOMEM;
    memcpy(entry, name, name_length);
    entry[name_length] = '=';
    memcpy(entry + name_length + 1, value, value_length + 1);
    if ((rc = put(env, find(env, name), entry)) < 0)
        give_back(env, entry);
    return rc;
}

int ct_env_setf(struct ct_env *env, const char *name, const char *fmt, ...)
{
    va_list args;
    char *value;
    int length;
    int rc;

    va_start(args, fmt);
    length = vasprintf(&value, fmt, args);
    va_end(args);
    if (length < 0)
        return -ENOMEM;
    rc = ct_env_set(env, name, value);
    free(value);
    return rc;
}

void ct_env_remove(struct ct_env *env, const char *name)
{
    size_t at = find(env, name);

    if (at == env->count)
        return;
    give_back(env, env->list[at]);
    memmove(env->list + at, env->list + at + 1, (env->count - at) * sizeof *env->list);
    env->count--;
}

const char *ct_env_get(const struct ct_env *env, const char *name)
{
    return ct_env_find(env->list, name);
}
