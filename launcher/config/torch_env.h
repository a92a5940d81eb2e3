/* SPDX-License-Identifier: Apache-2.0 */
/* What the PyTorch beside an interpreter needs in the environment of workers.
 *
 * Gloo's start at scale: by default each rank waits for and gets the addresses of all others, each with
 * an entry for everybody: N requests of N bytes for each of N ranks. Three variables of PyTorch make
 * that one request, or none until a connection is needed. They are right only when all ranks have them:
 * a node says in its JOIN whether it knows them, START says whether all do. */
#pragma once

#include <stdbool.h>

#include "launcher/config/program.h"
#include "worker_sdk/base/env.h"

/* 100 * major + minor of the torch beside the interpreter, which is looked up in PATH, or beside the one
 * whose packages its virtual environment shares (pyvenv.cfg); of the oldest where there are several; 0: there is none, or its version is not known. Reads its file of the
 * version; starts nothing. */
int torch_env_find(const char *interpreter, char *const *env);
/* "2.6" of such a number; empty for 0. */
void torch_env_format(char *dst, size_t size, int torch);
/* True for a program whose torch is one that Gloo's start at scale was tried with, where none of the
 * variables is set. */
bool torch_env_knows_gloo_scale(const struct program *program, char *const *env);
/* Sets them. 0 or -ENOMEM. */
int torch_env_set_gloo_scale(struct ct_env *out);
/* Sets what an older torch needs so that its failures are seen, unless the user has set it: errors of
 * NCCL end the process, and, if the flight recorder is read, NCCL's collectives are recorded. 0 or
 * -ENOMEM. */
int torch_env_set_older(struct ct_env *out, const struct program *program,
                        char *const *env, bool reads_recorder);
