/* SPDX-License-Identifier: Apache-2.0 */
/* A failed worker's own words: the error file that it left, if any. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

/* Replaces text and exception by what failure->error_file says; that becomes empty when the file is
 * absent, broken, or where nobody answers. Blocks for a second at most. redacts: what it says is
 * without secrets then (redact.h). */
void error_file_text_add(struct ct_failure *failure, bool redacts);
/* Takes secrets out of its text, exception and facts. */
void error_file_text_redact(struct ct_failure *failure);
