/* SPDX-License-Identifier: Apache-2.0 */
/* A failed worker's own words: the error file that it left, if any. */
#ifndef LAUNCHER_DESCRIBE_H
#define LAUNCHER_DESCRIBE_H

#include "worker_sdk/wire/message.h"

/* Replaces failure->text by what its error file says; failure->error_file becomes empty when
 * that is absent, broken, or where nobody answers. Asks for no longer than a second. */
void describe_failure(struct ct_failure *failure);

#endif
