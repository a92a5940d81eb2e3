/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

/* execve() of `path` has failed with failure->code, an errno. Adds as facts what is wrong with the #! line of a
 * script that exists (ENOENT), or that it is a folder or an empty file. False: none of these; then nothing was
 * added. */
bool interpreter_explain(struct ct_failure *failure, const char *path);
/* The same for a line that ends in CR LF, where env(1), which is there, looked for the interpreter. */
bool interpreter_explain_crlf(struct ct_failure *failure, const char *path);
