/* SPDX-License-Identifier: Apache-2.0 */
/* How a staged run learns where its files are: PROGRAM and the usual variables name the copy
 * where they named what was staged, and CTRUN_STAGE_DIR names the folder of all copies. Nothing
 * else is changed, in particular no argument of the program. Pure. */
#pragma once

#include "launcher/stage/stage_manifest.h"
#include "worker_sdk/base/env.h"

#define STAGE_ENV "CTRUN_STAGE_DIR"

/* `path` made absolute against cwd, without "", "." and "..", as its letters say. 0,
 * -ENAMETOOLONG. */
int stage_map_normalise(char *dst, size_t size, const char *cwd, const char *path);
/* The staged path ("venv/bin/python") of an absolute one at or below a source. 0, -ENOENT,
 * -ENAMETOOLONG. */
int stage_map_path(char *dst, size_t size, const struct stage_manifest *manifest,
                   const char *path);
/* Names below `dir` in env: CTRUN_STAGE_DIR; in PATH, PYTHONPATH, LD_LIBRARY_PATH, PYTHON_EXEC
 * and VIRTUAL_ENV each part that was staged. 0, -ENOMEM. */
int stage_map_env(struct ct_env *env, const struct stage_manifest *manifest,
                  const char *dir);
