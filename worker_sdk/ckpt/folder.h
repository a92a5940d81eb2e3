/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of sharded checkpoints: step-0000000000001000/, one for each step. With a manifest it
 * is complete; without one a rank died during the save. Only the group that saves writes or
 * removes there. */
#pragma once

#include <limits.h>

#include "worker_sdk/ckpt/manifest.h"

/* path: PATH_MAX bytes. 0, -ENAMETOOLONG. */
int ct_folder_path(char *path, const char *directory, uint64_t step, const char *file);
/* The newest step that is complete. 0, -ENOENT when none is, another -errno. */
int ct_folder_newest(const char *directory, uint64_t *step, struct ctrun_error *err);
/* After a checkpoint is complete: removes files of its step that its manifest does not list,
 * incomplete steps, and all complete steps but the newest `keep` (0: all stay). Removes only files
 * that a save makes. If a removal fails, the next save tries again. */
void ct_folder_prune(const char *directory, const struct ct_manifest *manifest,
                     uint64_t keep);
