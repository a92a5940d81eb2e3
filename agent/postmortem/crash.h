/* SPDX-License-Identifier: Apache-2.0 */
/* Where a worker crashed: its record, read after its death, with the functions of its frames. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

/* True when `fd` is a memfd and has a crash record. */
bool crash_is_recorded(int fd);
/* Adds the record to the failure's facts, and emits the event worker_crashed. Waits
 * CRASH_RESOLVE_MS at most for the files of the modules; without them frames have only
 * addresses. False when fd has no valid record. */
bool crash_explain(struct ct_failure *failure, int fd);
