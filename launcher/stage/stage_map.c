/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stage/stage_map.h"

#include <errno.h>
#include <limits.h>

#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/str.h"

enum {
    LIST_MAX_BYTES = 1 << 20
};

/* Appends the parts of `path` to dst, which is absolute already. */
static int append_parts(char *dst, size_t size, const char *path)
{
    size_t used = strlen(dst);

    while (*path) {
        const size_t length = strcspn(path, "/");

        if (length == 2 && path[0] == '.' && path[1] == '.') {
            while (used > 0 && dst[--used] != '/')
                ;
        } else if (length > 0 && !(length == 1 && path[0] == '.')) {
            if (ct_format(dst + used, size - used, "/%.*s", (int)length, path) < 0)
                return -ENAMETOOLONG;
            used += length + 1;
        }
        dst[used] = '\0';
        path += length;
        path += strspn(path, "/");
    }
    return 0;
}

int stage_map_normalise(char *dst, size_t size, const char *cwd, const char *path)
{
    int rc = 0;

    dst[0] = '\0';
    if (*path != '/')
        rc = append_parts(dst, size, cwd);
    if (rc == 0)
        rc = append_parts(dst, size, path);
    return rc < 0 || *dst ? rc : ct_copy(dst, size, "/");
}

/* The part of `path` after `base`: "" when equal, or "/..."; NULL: not below `base`. */
static const char *below(const char *path, const char *base)
{
    const size_t length = strlen(base);

    if (strncmp(path, base, length) != 0 || (path[length] && path[length] != '/'))
        return NULL;
    return path + length;
}

int stage_map_path(char *dst, size_t size, const struct stage_manifest *manifest,
                   const char *path)
{
    for (uint32_t i = 0; i < manifest->source_count; i++) {
        const struct stage_source *source = &manifest->sources[i];
        const char *rest = below(path, source->typed);

        if (!rest)
            rest = below(path, source->real);
        if (rest)
            return ct_format(dst, size, "%s%s", source->name, rest) < 0 ? -ENAMETOOLONG
                                                                        : 0;
    }
    return -ENOENT;
}

/* ---- Environment ------------------------------------------------------------------------- */

static int map_part(struct ct_buf *out, const struct stage_manifest *manifest,
                    const char *dir, const char *part)
{
    char path[PATH_MAX];
    char staged[PATH_MAX];

    if (*part == '/' && stage_map_normalise(path, sizeof path, "/", part) == 0 &&
        stage_map_path(staged, sizeof staged, manifest, path) == 0)
        return ct_buf_printf(out, "%s/%s", dir, staged);
    return ct_buf_append(out, part, strlen(part));
}

/* Maps each part of a list with ':'; a single path is such a list, too. */
static int map_list(struct ct_env *env, const char *name,
                    const struct stage_manifest *manifest, const char *dir)
{
    const char *rest = ct_env_get(env, name);
    struct ct_buf out;
    size_t length;
    int rc = 0;

    if (!rest)
        return 0;
    ct_buf_init(&out, LIST_MAX_BYTES);
    for (const char *part; rc >= 0 && (part = ct_next_field(&rest, ':', &length));) {
        char text[PATH_MAX];

        if (length >= sizeof text)
            rc = ct_buf_append(&out, part, length); /* too long to be a staged path */
        else if (ct_format(text, sizeof text, "%.*s", (int)length, part) >= 0)
            rc = map_part(&out, manifest, dir, text);
        if (rc >= 0 && rest)
            rc = ct_buf_append(&out, ":", 1);
    }
    if (rc >= 0)
        rc = ct_buf_append(&out, "", 1);
    if (rc >= 0)
        rc = ct_env_set(env, name, (const char *)ct_buf_data(&out));
    ct_buf_deinit(&out);
    return rc == -ENOBUFS ? 0 : rc; /* longer than execve() takes: left as it is */
}

int stage_map_env(struct ct_env *env, const struct stage_manifest *manifest,
                  const char *dir)
{
    static const char *const lists[] = {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH",
                                        "PYTHON_EXEC", "VIRTUAL_ENV"};
    int rc = ct_env_set(env, STAGE_ENV, dir);

    for (size_t i = 0; i < sizeof lists / sizeof *lists && rc >= 0; i++)
        rc = map_list(env, lists[i], manifest, dir);
    return rc < 0 ? rc : 0;
}
