/* SPDX-License-Identifier: Apache-2.0 */
/* Files below an open folder, reached part by part without following a symbolic link: what was
 * put in the way leads nowhere else. */
#pragma once

#include "launcher/stage/stage_manifest.h"

/* Remembers the last folder: the entries of a walk have mostly the same. */
struct stage_tree {
    int top; /* borrowed */
    int folder;
    char path[STAGE_PATH_MAX + 1]; /* of `folder` */
};

void stage_tree_init(struct stage_tree *tree, int top);
/* The open folder that `path` lies in, borrowed until the next call, and its own name there.
 * A descriptor or -errno. */
int stage_tree_parent(struct stage_tree *tree, const char *path, const char **name);
/* Forgets the folder: it may be another one from now on. */
void stage_tree_forget(struct stage_tree *tree);

/* Calls visit for each name in the folder, in no order, until it fails. 0, -errno or what visit
 * has returned. */
int stage_tree_list(int folder,
                    int (*visit)(void *context, int folder, const char *name),
                    void *context);

/* Removes `name` in `dir`, and what is in it. 0 (also when there is none) or -errno. */
int stage_tree_remove(int dir, const char *name);
/* Removes what the manifest does not have of the folder `path` ("": the top), but for
 * __pycache__: what Python has compiled of files that are still the same. 0 or -errno. */
int stage_tree_prune(int folder, const char *path,
                     const struct stage_manifest *manifest);
