/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a thread from /proc, as readable text: "sleeping in futex_do_wait", "stopped (T)",
 * "cannot be interrupted (D) in folio_wait_bit". */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum {
    LIVE_STATE_MAX = 128
};

/* The kernel's function is left out if it cannot be read. */
void live_state_format(char dst[LIVE_STATE_MAX], pid_t pid, uint64_t thread);
