/* SPDX-License-Identifier: Apache-2.0 */
/* The exit code of a launcher that ends, and its own error file. */
#pragma once

#include "launcher/config/config.h"

/* The file that TORCHELASTIC_ERROR_FILE names for this launcher, borrowed; NULL: none. */
const char *launch_own_error_file(void);
/* Writes `message` into that file, if there is one. */
void launch_write_own_error(const char *message);
/* An error of the launcher itself: prints it, and writes it into that file, if there is one. */
void launch_print_error(const struct ctrun_error *err);
/* As launch_print_error(); returns the exit code. */
int launch_fail(const struct config *config, const struct ctrun_error *err);
