/* SPDX-License-Identifier: Apache-2.0 */
/* How a staged run finds its files: staged paths in PROGRAM and in common variables are replaced by
 * the paths of the copies, and CTRUN_STAGE_DIR names the folder of all copies. Nothing else is
 * changed, in particular no argument of the program. Pure. */
#pragma once

#include "launcher/stage/stage_manifest.h"
#include "worker_sdk/base/env.h"

#define STAGE_ENV "CTRUN_STAGE_DIR"

/* Makes `path` absolute against cwd, without "", "." and "..", by its text only (links are not
 * followed). 0, -ENAMETOOLONG. */
int stage_map_normalise(char *dst, size_t size, const char *cwd, const char *path);
/* The staged path ("venv/bin/python") of an absolute path at or below a source. 0, -ENOENT,
 * -ENAMETOOLONG. */
int stage_map_path(char *dst, size_t size, const struct stage_manifest *manifest,
                   const char *path);
/* Sets CTRUN_STAGE_DIR in env to `dir`, and replaces each staged part of PATH, PYTHONPATH,
 * LD_LIBRARY_PATH, PYTHON_EXEC and VIRTUAL_ENV by the copy below `dir`. 0, -ENOMEM. */
int stage_map_env(struct ct_env *env, const struct stage_manifest *manifest,
                  const char *dir);
