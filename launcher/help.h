/* SPDX-License-Identifier: Apache-2.0 */
/* What ctrun prints about its own options: --help and --print-completion, from
 * option_table. */
#ifndef LAUNCHER_HELP_H
#define LAUNCHER_HELP_H

#include <stdio.h>

#define HELP_USAGE "usage: ctrun [options] PROGRAM [arguments ...]"

void help_print(FILE *out);
/* shell: bash, zsh or tcsh. */
void help_print_completion(FILE *out, const char *shell);

#endif
