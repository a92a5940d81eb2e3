/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/stage/stage_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/fd.h"
#include "worker_sdk/base/str.h"

enum {
    DEPTH_MAX = 256,
    FOLDER_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
};

void stage_tree_init(struct stage_tree *tree, int top)
{
    *tree = (struct stage_tree){.top = top, .folder = -1};
}

void stage_tree_forget(struct stage_tree *tree)
{
    ct_close(&tree->folder);
}

/* Opens one name after the other, each with O_NOFOLLOW: a link that another process puts into the
 * tree meanwhile cannot lead out of it. */
static int walk(int top, const char *path, size_t length)
{
    int folder = openat(top, ".", FOLDER_FLAGS);

    for (size_t at = 0; folder >= 0 && at < length;) {
        const size_t size = strcspn(path + at, "/");
        char name[STAGE_NAME_MAX + 1];
        int next = -1;

        if (ct_format(name, sizeof name, "%.*s", (int)size, path + at) < 0)
            errno = ENAMETOOLONG;
        else
            next = openat(folder, name, FOLDER_FLAGS);
        if (next < 0) {
            const int why = errno;

            close(folder);
            return -why;
        }
        close(folder);
        folder = next;
        at += size + 1;
    }
    return folder < 0 ? -errno : folder;
}

int stage_tree_parent(struct stage_tree *tree, const char *path, const char **name)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash ? (size_t)(slash - path) : 0;
    int folder;

    *name = slash ? slash + 1 : path;
    if (length == 0)
        return tree->top;
    if (tree->folder >= 0 && strlen(tree->path) == length &&
        strncmp(tree->path, path, length) == 0)
        return tree->folder;
    stage_tree_forget(tree);
    if ((folder = walk(tree->top, path, length)) < 0)
        return folder;
    (void)ct_format(tree->path, sizeof tree->path, "%.*s", (int)length, path);
    /* Cached, because the next file is mostly in the same folder. The caller borrows it until the
     * next call. */
    return tree->folder = folder;
}

int stage_tree_list(int folder,
                    int (*visit)(void *context, int folder, const char *name),
                    void *context)
{
    /* closedir() closes what it was given, and the caller keeps `folder` */
    const int copy = openat(folder, ".", FOLDER_FLAGS);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    int rc = 0;

    if (!list) {
        rc = -errno;
        if (copy >= 0)
            close(copy);
        return rc;
    }
    errno = 0;
    for (struct dirent *it; rc == 0 && (it = readdir(list)); errno = 0)
        if (strcmp(it->d_name, ".") != 0 && strcmp(it->d_name, "..") != 0)
            rc = visit(context, folder, it->d_name);
    if (rc == 0 && errno != 0)
        rc = -errno;
    closedir(list);
    return rc;
}

/* ---- Removing ---------------------------------------------------------------------------- */

static int remove_in(void *context, int folder, const char *name)
{
    const int depth = *(int *)context + 1;
    struct stat info;
    int inner;
    int below = depth;
    int rc;

    if (unlinkat(folder, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(info.st_mode) || depth > DEPTH_MAX)
        return depth > DEPTH_MAX ? -ELOOP : -errno;
    /* A worker may have made a folder without write permission. */
    (void)fchmodat(folder, name, 0700, 0);
    if ((inner = openat(folder, name, FOLDER_FLAGS)) < 0)
        return -errno;
    rc = stage_tree_list(inner, remove_in, &below);
    close(inner);
    if (rc == 0 && unlinkat(folder, name, AT_REMOVEDIR) < 0)
        rc = -errno;
    return rc;
}

int stage_tree_remove(int dir, const char *name)
{
    int depth = 0;

    return remove_in(&depth, dir, name);
}

struct prune {
    const struct stage_manifest *manifest;
    const char *path;
};

static int prune_name(void *context, int folder, const char *name)
{
    const struct prune *prune = context;
    char path[STAGE_PATH_MAX + STAGE_NAME_MAX + 2];

    /* Python makes this folder: without it Python compiles everything again in each run. */
    if (strcmp(name, "__pycache__") == 0)
        return 0;
    if (ct_format(path, sizeof path, "%s%s%s", prune->path, *prune->path ? "/" : "",
                  name) >= 0 &&
        stage_manifest_find(prune->manifest, path))
        return 0;
    return stage_tree_remove(folder, name);
}

int stage_tree_prune(int folder, const char *path,
                     const struct stage_manifest *manifest)
{
    struct prune prune = {.manifest = manifest, .path = path};

    return stage_tree_list(folder, prune_name, &prune);
}
