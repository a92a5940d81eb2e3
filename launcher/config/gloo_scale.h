/* SPDX-License-Identifier: Apache-2.0 */
/* Gloo's start at scale. By default each rank waits for and gets the addresses of all others, each with
 * an entry for everybody: N requests of N bytes for each of N ranks. Three variables of PyTorch make
 * that one request, or none until a connection is needed. They are right only when all ranks have them:
 * a node says in its JOIN whether it knows them, START says whether all do. */
#pragma once

#include <stdbool.h>

#include "launcher/config/program.h"
#include "worker_sdk/base/env.h"

/* True for a program of Python whose torch, beside the interpreter, is one that this was tried with,
 * where none of the variables is set. Reads its version from its file; starts nothing. */
bool gloo_scale_is_known(const struct program *program, char *const *env);
/* Sets them. 0 or -ENOMEM. */
int gloo_scale_set_env(struct ct_env *env);
