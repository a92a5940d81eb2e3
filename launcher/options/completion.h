/* SPDX-License-Identifier: Apache-2.0 */
/* Completion scripts of ctrun, from option_table. */
#pragma once

#include <stdio.h>

/* shell: bash, zsh, fish or tcsh. */
void completion_print(FILE *out, const char *shell);
