/* SPDX-License-Identifier: Apache-2.0 */
/* What ctrun prints about its own options: --help, from option_table. */
#pragma once

#include <stdio.h>

#define HELP_USAGE "usage: ctrun [options] PROGRAM [arguments ...]"

void help_print(FILE *out);
