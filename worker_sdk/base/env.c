/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/env.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker_sdk/base/alloc.h"

int ct_env_init(struct ct_env *env, char *const *base)
{
    size_t count = 0;

    *env = (struct ct_env){0};
    while (base && base[count])
        count++;
    env->capacity = count + 32; /* what a launcher adds */
    if (!(env->list = ct_zalloc_array(env->capacity + 1, sizeof *env->list)))
        return -ENOMEM;
    for (; env->count < count; env->count++) {
        if (!(env->list[env->count] = ct_strdup(base[env->count]))) {
            ct_env_deinit(env);
            return -ENOMEM;
        }
    }
    return 0;
}

void ct_env_deinit(struct ct_env *env)
{
    for (size_t i = 0; i < env->count; i++)
        free(env->list[i]);
    free(env->list);
    *env = (struct ct_env){0};
}

const char *ct_env_find(char *const *list, const char *name)
{
    const size_t length = strlen(name);

    for (; list && *list; list++)
        if (strncmp(*list, name, length) == 0 && (*list)[length] == '=')
            return *list + length + 1;
    return NULL;
}

/* Index of name, or count when it is not set. */
static size_t find(const struct ct_env *env, const char *name)
{
    size_t length = strlen(name);
    size_t i;

    for (i = 0; i < env->count; i++)
        if (strncmp(env->list[i], name, length) == 0 && env->list[i][length] == '=')
            break;
    return i;
}

static int put(struct ct_env *env, size_t at, char *entry)
{
    char **list;

    if (at < env->count) {
        free(env->list[at]);
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
    if (!(entry = ct_zalloc(name_length + value_length + 2)))
        return -ENOMEM;
    memcpy(entry, name, name_length);
    entry[name_length] = '=';
    memcpy(entry + name_length + 1, value, value_length);
    if ((rc = put(env, find(env, name), entry)) < 0)
        free(entry);
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
    free(env->list[at]);
    memmove(env->list + at, env->list + at + 1, (env->count - at) * sizeof *env->list);
    env->count--;
}

const char *ct_env_get(const struct ct_env *env, const char *name)
{
    return ct_env_find(env->list, name);
}
