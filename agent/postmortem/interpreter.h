/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

/* The script `path` exists but execve() returned ENOENT: adds what is wrong with its #! line as
 * facts. False: the file does not exist, or is no script; then nothing was added. */
bool interpreter_explain(struct ct_failure *failure, const char *path);
/* The same for a line that ends in CR LF, where env(1), which is there, looked for the interpreter. */
bool interpreter_explain_crlf(struct ct_failure *failure, const char *path);
