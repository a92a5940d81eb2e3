/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the folders above a path, writes a file, and removes a folder with all that is in it. */
#pragma once

#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/test.h"

/* Returns ROOT/path, in static memory; makes the folders above it. */
__attribute__((format(printf, 2, 0))) static inline const char *
test_place(const char *root, const char *format, va_list args)
{
    static char path[512];
    int used = snprintf(path, sizeof path, "%s/", root);

    (void)vsnprintf(path + used, sizeof path - (size_t)used, format, args);
    for (char *p = path + used; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        (void)mkdir(path, 0700);
    }
    return path;
}

/* Writes ROOT/path and makes the folders above it. */
__attribute__((format(printf, 3, 4))) static inline void
test_put_under(const char *root, const char *text, const char *format, ...)
{
    va_list args;
    FILE *file;

    va_start(args, format);
    assert_non_null(file = fopen(test_place(root, format, args), "we"));
    va_end(args);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Writes ROOT/name, in a folder that is there. */
static inline void test_put(const char *root, const char *name, const char *text)
{
    char path[512];
    FILE *file;

    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    assert_non_null(file = fopen(path, "we"));
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int tree_remove_entry(const char *path, const struct stat *info, int type,
                             struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

static inline int test_remove_tree(const char *root)
{
    return nftw(root, tree_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
