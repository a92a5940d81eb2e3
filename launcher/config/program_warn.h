/* SPDX-License-Identifier: Apache-2.0 */
/* Words after ctrun's own options that the user probably meant otherwise. */
#pragma once

#include "launcher/config/program.h"
#include "launcher/options/option.h"

/* Warns of options of ctrun after the program, and of a program that is a launcher itself. Both may
 * be intended: the run continues. */
void program_warn(const struct options *options);
/* It is a Python script that calls jax.distributed.initialize() without arguments. May block with the file
 * system of the script. */
bool program_calls_jax(const struct program *program);
/* Warns of a file NAME.sh that Python is to run: it is not executable, or has no "#!" line. */
void program_warn_shell(const struct program *program);
