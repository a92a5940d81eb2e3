/* SPDX-License-Identifier: Apache-2.0 */
/* A hash that shows whether all nodes have the same program: of its size and its first and last 64
 * KiB. The first ones contain a build id, and an edited script differs in one of them. */
#pragma once

#include "launcher/config/program.h"

/* The hash of the program, or of the script that Python runs; 0 when it cannot be read, or is a
 * module. env: has PATH, for a program without a slash. */
uint64_t program_hash(const struct program *program, char *const *env);
