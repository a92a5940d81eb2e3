/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of sharded checkpoints: step-0000000000001000/, one for each step. With a manifest it is
 * complete; without one somebody died in the middle of it. Nobody else writes there: who saves is the only
 * one that removes. */
#pragma once

#include <limits.h>

#include "worker_sdk/ckpt/manifest.h"

/* path: PATH_MAX bytes. 0, -ENAMETOOLONG. */
int ct_folder_path(char *path, const char *directory, uint64_t step, const char *file);
/* The newest step that is complete. 0, -ENOENT when none is, another -errno. */
int ct_folder_newest(const char *directory, uint64_t *step, struct ctrun_error *err);
/* After a checkpoint is complete: removes files of its step that its manifest has not, steps that are not
 * complete, and the oldest that are but for `keep` (0: all stay). Only files that a save makes. What cannot
 * be removed stays: the next save tries again. */
void ct_folder_prune(const char *directory, const struct ct_manifest *manifest,
                     uint64_t keep);
