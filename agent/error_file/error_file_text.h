/* SPDX-License-Identifier: Apache-2.0 */
/* The error text of a failed worker, from the error file that it left, if any. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

/* Replaces text and exception by those of the file failure->error_file; the path becomes empty
 * when the file is absent or broken, or its file system does not answer. Blocks for a second at
 * most. redacts: secrets in these texts are removed (redact.h). */
void error_file_text_add(struct ct_failure *failure, bool redacts);
/* Removes secrets from its text, exception and facts. */
void error_file_text_redact(struct ct_failure *failure);
