/* SPDX-License-Identifier: Apache-2.0 */
/* Is it the same program on all nodes? Its size, its first and its last 64 KiB say so: a build id
 * is among the first, and an edited script differs in these. */
#pragma once

#include "launcher/config/program.h"

/* Of the program, or of the script that Python runs; 0 when it cannot be read, or is a module.
 * path: PATH, for a program without a slash; may be NULL. */
uint64_t program_hash(const struct program *program, const char *path);
