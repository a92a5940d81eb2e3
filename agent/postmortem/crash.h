/* SPDX-License-Identifier: Apache-2.0 */
/* Where a worker crashed: its record, read after its death, with the functions of its frames. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/wire/message.h"

/* True when `fd` is memory, not a file, and something has crashed in it. */
bool crash_is_recorded(int fd);
/* Adds what the record says to the failure's facts, and emits the event worker_crashed. Waits
 * CRASH_RESOLVE_MS at most for the files of the modules; without them frames have numbers. False
 * when it is no record. */
bool crash_explain(struct ct_failure *failure, int fd);
