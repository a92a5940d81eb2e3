/* SPDX-License-Identifier: Apache-2.0 */
/* Opens files below an open folder, name by name without following a symbolic link, so that no link
 * can lead out of the folder. */
#pragma once

#include "launcher/stage/stage_manifest.h"

/* Caches the last folder: the next entry of a walk is mostly in the same folder. */
struct stage_tree {
    int top; /* borrowed */
    int folder;
    char path[STAGE_PATH_MAX + 1]; /* of `folder` */
};

void stage_tree_init(struct stage_tree *tree, int top);
/* The open parent folder of `path`, borrowed until the next call; *name is the last part of `path`.
 * A descriptor or -errno. */
int stage_tree_parent(struct stage_tree *tree, const char *path, const char **name);
/* Forgets the cached folder: the path may mean another folder from now on. */
void stage_tree_forget(struct stage_tree *tree);

/* Calls visit for each name in the folder, in no order, until visit fails. 0, -errno or the result
 * of visit. */
int stage_tree_list(int folder,
                    int (*visit)(void *context, int folder, const char *name),
                    void *context);

/* Removes `name` in `dir` and everything in it. 0 (also when it does not exist) or -errno. */
int stage_tree_remove(int dir, const char *name);
/* Removes from the folder `path` ("": the top) what is not in the manifest, except __pycache__:
 * Python's compiled files may still be right. 0 or -errno. */
int stage_tree_prune(int folder, const char *path,
                     const struct stage_manifest *manifest);
