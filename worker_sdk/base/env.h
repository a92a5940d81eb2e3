/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of an environment in which names can be set and removed, for execve().
 *
 * Names keep the order of the original; new ones come at the end. Each name appears once. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Where programs are looked for without PATH. */
#define CT_ENV_NO_PATH "/usr/local/bin:/usr/bin:/bin"

struct ct_env {
    char **list; /* "NAME=value" entries, NULL at the end; owned; give it to execve() */
    size_t count;
    size_t capacity;
    char *room; /* owned: most of the entries; others are on the heap */
    size_t room_used, room_bytes;
};

/* Copies `base` (may be NULL: empty). 0 or -ENOMEM. deinit accepts a zeroed one. */
int ct_env_init(struct ct_env *env, char *const *base);
void ct_env_deinit(struct ct_env *env);
/* Sets or replaces. The name must not hold '='. 0, -EINVAL, -ENOMEM. */
int ct_env_set(struct ct_env *env, const char *name, const char *value);
__attribute__((format(printf, 3, 4))) int
ct_env_setf(struct ct_env *env, const char *name, const char *fmt, ...);
void ct_env_remove(struct ct_env *env, const char *name);
/* The value of name in a list as environ is (NULL: an empty one), borrowed; NULL: not set. */
const char *ct_env_find(char *const *list, const char *name);
/* The program that a worker with that list executes: `name` itself if it has a slash, else the first executable file of that name
 * in PATH; an empty entry of PATH is the current folder. False: there is none, or its path does not fit. Blocks with the
 * file systems. */
bool ct_env_find_program(char *dst, size_t size, char *const *list, const char *name);
/* The value, borrowed until it changes; NULL when the name is not set. */
const char *ct_env_get(const struct ct_env *env, const char *name);
